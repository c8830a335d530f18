"""What is measured, one module each.

`session(environment)` makes, in the thread that uses it, what goes through one cycle after another: it takes the lock
of a key, waiting for whoever has it, and releases it.
"""
