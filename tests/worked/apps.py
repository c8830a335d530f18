from __future__ import annotations

from django.apps import AppConfig

__all__ = ["WorkedConfig"]


class WorkedConfig(AppConfig):
    name = "tests.worked"

    def ready(self) -> None:
        from django_reactor.queues import processes
        from tests.worked import reactors

        processes.on_boot(reactors.occupy)
