"""What is measured, one module each: `contender(environment)` makes it in the worker's process.

Each writes, for an execution of n steps, at least n + 1 commits, with a value as small and a row as wide as a journal
entry of ours; what more a contender writes is its own choice, and part of what is measured.
"""
