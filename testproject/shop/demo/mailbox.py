"""What arrived in the directory that stands for the customers' mailboxes."""

from __future__ import annotations

from collections import Counter
from email.parser import BytesHeaderParser
from pathlib import Path

__all__ = ["copies", "empty"]

BETWEEN = b"-" * 79 + b"\n"
"""What Django's backend writes after each mail; two of one moment share a file."""


def copies(directory: Path) -> Counter[str]:
    """How many mails bear each Message-ID."""
    counted = Counter[str]()
    for path in directory.glob("*.log"):
        for mail in path.read_bytes().split(BETWEEN):
            if mail.strip():
                counted[str(BytesHeaderParser().parsebytes(mail)["Message-ID"])] += 1
    return counted


def empty(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()
