"""The engine against bare loops and its peers, measured side by side in one run: `python -m benchmarks --help`."""
