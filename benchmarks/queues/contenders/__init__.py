"""What is measured, one module each.

`producer(environment)` makes, in the producer's process, what enqueues and knows when all is done; `consumers(python)`
are the commands that start 2 processes with 4 threads each. Both do two kinds of work: nothing, and to say when it
started (see `stamps`).
"""
