from __future__ import annotations

from django.apps import AppConfig

__all__ = ["ProofConfig"]


class ProofConfig(AppConfig):
    name = "tests.proof"
