"""Locks taken and released against those of other projects: `python -m benchmarks.locks --help`."""
