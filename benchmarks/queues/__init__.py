"""Deliveries by worker processes against queues of other projects: `python -m benchmarks.queues --help`."""
