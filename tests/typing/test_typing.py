"""What type checkers know of a declaration, and what they object to."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

SAMPLE = Path(__file__).with_name("orders.py")


def test_a_strict_checker_knows_inputs_and_results_and_objects_where_it_must(request: pytest.FixtureRequest) -> None:
    cache = request.config.cache
    assert cache is not None
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={cache.mkdir('typing')}"]
    output, problems, _ = api.run([*options, "--no-error-summary", str(SAMPLE)])
    assert (output, problems) == ("", "")
