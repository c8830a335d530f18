"""Locks, semaphores and rate limits in Redis.

What is guaranteed. Redis's own clock decides. While a server keeps what it was told, and evicts nothing
(`maxmemory-policy noeviction`), a hold is one owner's until it is released or its ttl is over. A server that was
started again, a replica that took over, or a database that was emptied may have forgotten holds: so for as long as the
longest of them may still have been valid, the ttl of whoever asks, nobody gets what looks free. Then all goes on by
itself. What was not forgotten is extended, taken again and released all the time. Rate limits that were forgotten begin
at nought.
"""
