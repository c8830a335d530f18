"""How a body says when it started: by a datagram, which costs no contender a service that another has not.

The clock is the machine's, the same in all of its processes.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import closing

__all__ = ["latencies", "send_stamp"]

FORM = "d"
PATIENCE = 60.0
LONGEST_PAUSE = 0.5


def send_stamp() -> None:
    """Now, to whoever listens."""
    now = time.monotonic()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
        sender.sendto(struct.pack(FORM, now), os.environ["BENCHMARK_STAMPS"])


def latencies(enqueue: Callable[[], None], samples: int) -> Sequence[float]:
    """Seconds from before each enqueue to the start of its body, one at a time. The pause before each is by chance: who
    looks for work now and then must not be met at his moment."""
    path = os.environ["BENCHMARK_STAMPS"]
    found = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(path)
        receiver.settimeout(PATIENCE)
        try:
            for _ in range(samples):
                time.sleep(random.uniform(0, LONGEST_PAUSE))
                asked_at = time.monotonic()
                enqueue()
                found.append(struct.unpack(FORM, receiver.recv(64))[0] - asked_at)
        finally:
            os.unlink(path)
    return found
