from __future__ import annotations

from django.apps import AppConfig

__all__ = ["KilledConfig"]


class KilledConfig(AppConfig):
    name = "tests.killed"

    def ready(self) -> None:
        from tests.killed import trap

        trap.set_up()
