"""A TCP line to a server, which a test can cut and mend: the server's outage, without one for anybody else."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

__all__ = ["Line"]

CHUNK = 65536


class Line:
    """`url` leads to the same place as the given one, over this line."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._port = 0
        self.mend()
        self.url = _with_address(parts, f"127.0.0.1:{self._port}")

    def mend(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """End every connection and take no other."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept` in the thread
            self._listener.close()
            self._listener = None
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _close(end)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._server)
                with self._lock:
                    self._ends |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    _close(target)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _with_address(parts: SplitResult, address: str) -> str:
    credentials, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{credentials}{at}{address}").geturl()
