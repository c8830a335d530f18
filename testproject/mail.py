"""Mail into a directory, in the words of the Django that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import django

__all__ = ["mail_into"]

FILES = "django.core.mail.backends.filebased.EmailBackend"


def mail_into(directory: str | Path) -> dict[str, Any]:
    """The settings that write each mail to a file in this directory. Django 6.1 has deprecated those of before."""
    if django.VERSION >= (6, 1):
        return {"MAILERS": {"default": {"BACKEND": FILES, "OPTIONS": {"file_path": str(directory)}}}}
    return {"EMAIL_BACKEND": FILES, "EMAIL_FILE_PATH": directory}
