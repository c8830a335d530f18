"""Fixtures of the unit tests."""

from tests.unit.made_up import own_registry

__all__ = ["own_registry"]
