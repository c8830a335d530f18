"""What is installed is what the checkout holds, and importing it asks for nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from django.core.management import call_command
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_reactor"
LEFT_OUT = {".pyc", ".pyo"}

IMPORT_ALONE = """
import sys
import django_reactor
from django.conf import settings
assert not settings.configured, "importing configured the settings"
for module in ("django_reactor.models", "django.db.models.base"):
    assert module not in sys.modules, f"importing loaded {module}"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools writes into the tree that it builds from, and packs what an earlier build left."""
    source = tmp_path_factory.mktemp("checkout")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("django_reactor", "testproject", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(source / 'dist')!r})"
    run = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_importing_the_package_needs_no_settings_and_loads_no_model() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALONE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    in_checkout = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in LEFT_OUT
    }
    assert packed == in_checkout


def test_the_wheel_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "django_reactor/py.typed" in archive.namelist()


def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if Path(name).name == "LICENSE")
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_promised_extras_can_be_installed(metadata: Message) -> None:
    promised = {"redis", "rabbitmq", "rq", "tasks", "otel", "demo", "test"}
    assert set(metadata.get_all("Provides-Extra", [])) == promised


def test_an_installation_without_extras_brings_only_the_four_required_packages(metadata: Message) -> None:
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {canonicalize_name(one.name) for one in required if one.marker is None}
    assert always == {"django", "django-dramatiq", "dramatiq", "pydantic"}


def test_the_version_stands_in_the_metadata_alone() -> None:
    elsewhere = [path for path in PACKAGE.rglob("*.py") if "__version__" in path.read_text(encoding="utf-8")]
    assert elsewhere == []


@pytest.mark.django_db
def test_the_migrations_are_those_of_the_models() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
