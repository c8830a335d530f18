from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

__all__ = ["DjangoReactorConfig"]


class DjangoReactorConfig(AppConfig):
    name = "django_reactor"
    verbose_name = _("Reactors")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Learn which app a module belongs to, then import each app's `reactors` module."""
        from django.core.checks import register

        from django_reactor import checks, queues, runtime, sweeper, worker
        from django_reactor.coordination import checks as of_coordination
        from django_reactor.queues import checks as of_queues
        from django_reactor.queues import processes

        runtime.install()
        for check in (*checks.CHECKS, *of_coordination.CHECKS, *of_queues.CHECKS):
            register(check)
        for check in of_queues.DEPLOY_CHECKS:
            register(check, deploy=True)
        autodiscover_modules("reactors")
        queues.install(worker.deliver)
        processes.on_boot(sweeper.start)
        processes.on_stop(sweeper.stop)
