"""Opens the admin on the demo's database."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.core.management import call_command

__all__ = ["NAME", "PASSWORD", "ensure_user", "serve"]

NAME = PASSWORD = "admin"


def ensure_user() -> None:
    users = get_user_model()._default_manager
    if not users.filter(**{get_user_model().USERNAME_FIELD: NAME}).exists():
        users.create_superuser(NAME, f"{NAME}@example.com", PASSWORD)


def serve(port: int) -> None:
    """Until Ctrl-C. In this process: a reloaded one would not know the demo's file. Static files are served even
    without DEBUG, or the admin would stand there without its style."""
    call_command("runserver", f"127.0.0.1:{port}", use_reloader=False, insecure_serving=True)
