"""Proof by record: processes that coordinate write down what they ask, get and leave, and rules judge it afterwards.

`events` is the record, `holding`, `starting` and `lining` the rules, `crew` the processes and what befalls them.
"""
