"""`manage.py demo` as its user meets it: a process, its output, its exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"COLUMNS": "120", "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
CLAIMS = 27
MOST = 300.0
"""Seconds within which the demo must end, whatever is killed meanwhile."""


def command(database: Path | None, *options: str) -> list[str]:
    return [sys.executable, "manage.py", "demo", *(("--database", str(database)) if database else ()), *options]


def demo(database: Path | None, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without a file: on the server that the environment names."""
    arguments = command(database, *options)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        arguments, cwd=ROOT, env=ENVIRONMENT | environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            printed, complained = process.communicate(timeout=MOST)
        except subprocess.TimeoutExpired:
            process.terminate()  # and with it the workers that it started
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, printed, complained)


def heed_ctrl_c() -> None:
    """As in a terminal: a shell that starts the tests in its background has them, and what they start, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def outcomes(output: str) -> str:
    """How orders ended, which is the seed's to say. What it took (who asked the gateway again) is not."""
    return output[output.index("Orders by outcome") : output.index("Requests as the gateway saw them")]


def scalar(database: Path, statement: str) -> object:
    with closing(sqlite3.connect(database)) as file, file:
        row = file.execute(statement).fetchone()
    return row and row[0]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "demo.sqlite3"


@pytest.fixture(scope="module")
def ran(database: Path) -> subprocess.CompletedProcess[str]:
    return demo(database, "--faults", "0.3", "--limit", "100")


def test_orders_that_meet_faults_end_in_every_way_and_the_books_balance(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for status, step, failure in [
        ("completed", "", ""),
        ("failed", "reserve", "out of stock: CD-SOLD-OUT"),
        ("failed", "fraud_check", "the customer is blocked"),
        ("failed", "charge", "the card was declined"),
        ("failed", "charge", "the gateway did not answer in time"),
        ("failed", "charge", "the order was not approved"),
        ("failed", "shipping.hand_over", "the warehouse refused the order"),
    ]:
        assert re.search(rf"│ {status} +│ {step} *│ {failure} *│ +[1-9]\d* │", ran.stdout), (status, step, failure)
    for outcome in ["timeout, charged all the same", "timeout, not charged", "first charge returned again"]:
        assert re.search(rf"│ {outcome} +│ +[1-9]", ran.stdout), outcome
    assert ran.stdout.count("holds") == CLAIMS
    assert "FAILS" not in ran.stdout


def test_executions_waited_for_each_other_and_the_day_was_settled_once(
    ran: subprocess.CompletedProcess[str], database: Path
) -> None:
    waited = ran.stdout.partition("Who had to wait for others")[2].partition("Mails")[0]
    for shared in ["a line of the gateway", "the gateway's quota of a second"]:
        assert shared in waited
    assert sum(int(count) for count in re.findall(r"│ +(\d+) │ +\d+ │", waited)), "the limits are such that some had to"
    assert re.search(r"│ settlements +│ +3 │ +1 │", ran.stdout)
    assert scalar(database, "SELECT count(*) FROM shop_settlement") == 1


def test_every_way_of_taking_something_back_was_used(ran: subprocess.CompletedProcess[str], database: Path) -> None:
    for table, state in [
        ("shop_reservation", "released"),
        ("shop_gatewaycharge", "voided"),
        ("shop_gatewaycharge", "refunded"),
        ("shop_payment", "refunded"),
    ]:
        assert scalar(database, f"SELECT count(*) FROM {table} WHERE state = '{state}'"), (table, state)
    assert scalar(database, "SELECT count(*) FROM shop_order WHERE status = 'cancelled'")


def test_large_orders_waited_for_an_approval(ran: subprocess.CompletedProcess[str], database: Path) -> None:
    assert ran.returncode == 0
    answers = "SELECT count(*) FROM django_reactor_wait WHERE step = 'approval' AND state = 'applied'"
    assert scalar(database, answers)
    assert scalar(database, "SELECT count(*) FROM shop_order WHERE status = 'confirmed' AND total > 5000")


def test_the_same_seed_gives_the_same_outcomes_and_another_seed_gives_others(tmp_path: Path) -> None:
    runs = [demo(tmp_path / "demo.sqlite3", "--limit", "30", "--faults", "0.3", "--seed", seed) for seed in "112"]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 3
    first, again, other = (outcomes(run.stdout) for run in runs)
    assert first == again
    assert first != other


def test_without_faults_every_order_completes_and_what_costs_nothing_is_not_charged(tmp_path: Path) -> None:
    database, orders = tmp_path / "demo.sqlite3", tmp_path / "orders.txt"
    orders.write_text("00004 0001 19970101 2 29.33\n00004 0001 19970118 1 0.00\n")
    run = demo(database, "--orders", str(orders), "--faults", "0")
    assert run.returncode == 0, run.stdout + run.stderr
    assert scalar(database, "SELECT count(*) FROM shop_order WHERE status = 'confirmed'") == 2
    assert scalar(database, "SELECT group_concat(amount) FROM shop_gatewaycharge") == "2933"


def test_going_on_with_a_file_places_no_order_twice_and_those_that_are_missing(tmp_path: Path) -> None:
    database = tmp_path / "demo.sqlite3"
    assert demo(database, "--limit", "5", "--faults", "0").returncode == 0
    run = demo(database, "--limit", "8", "--faults", "0", "--keep")
    assert run.returncode == 0, run.stdout + run.stderr
    assert scalar(database, "SELECT count(*) FROM shop_order") == 8


def test_without_faults_forty_orders_are_handed_off_mailed_and_rewarded_once(tmp_path: Path) -> None:
    database = tmp_path / "demo.sqlite3"
    run = demo(database, "--limit", "40", "--faults", "0")
    assert run.returncode == 0, run.stdout + run.stderr
    for kind in [r"orders +│ +40 │ +40 │ +40", r"mails +│ +40 │ +40 │ +0", r"points +│ +40 │ +40 │ +0"]:
        assert re.search(f"│ {kind} │", run.stdout), kind
    mails = [path.read_text() for path in database.with_name("demo.sqlite3-files").glob("mail/*.log")]
    assert sum(text.count("\nSubject: Your order ") for text in mails) == 40
    assert scalar(database, "SELECT count(*) FROM shop_pointsmovement") == 40


def test_an_interrupted_demo_says_how_to_go_on_and_going_on_finishes_what_workers_had_in_hand(tmp_path: Path) -> None:
    database = tmp_path / "demo.sqlite3"
    with subprocess.Popen(
        command(database, "--faults", "0"),
        cwd=ROOT,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    ) as process:
        assert process.stderr
        try:
            await_the_first_hand_off(database)
        finally:
            process.send_signal(signal.SIGINT)
        complained = process.stderr.read()
    assert process.returncode == 130, complained
    assert "--keep goes on with the orders that are left" in complained
    run = demo(database, "--faults", "0", "--keep")
    assert run.returncode == 0, run.stdout + run.stderr
    assert scalar(database, "SELECT count(*) FROM shop_order WHERE status = 'confirmed'") == 137


def await_the_first_hand_off(database: Path) -> None:
    """Many orders are not placed yet then."""
    deadline = time.monotonic() + MOST
    handed_off = "SELECT count(*) FROM django_reactor_journalentry WHERE action = 'hand_off'"
    while time.monotonic() < deadline:
        with suppress(sqlite3.OperationalError):  # no table yet
            if database.exists() and scalar(database, handed_off):
                return
        time.sleep(0.05)
    pytest.fail("no order was handed off")


def test_books_that_do_not_balance_fail_the_command_by_name(tmp_path: Path) -> None:
    database = tmp_path / "demo.sqlite3"
    assert demo(database, "--limit", "5").returncode == 0
    scalar(database, "UPDATE shop_stock SET on_hand = on_hand + 1")
    run = demo(database, "--limit", "5", "--keep")
    assert run.returncode != 0
    assert "FAILS" in run.stdout
    assert "the books do not balance: units received = on hand + sold" in run.stderr


@pytest.mark.parametrize("content", [b"", b"notes of mine", "a database"])
def test_a_file_that_the_demo_did_not_make_is_left_alone(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "mine.sqlite3"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        scalar(path, "CREATE TABLE mine (id)")
    before = path.read_bytes()
    run = demo(path)
    assert run.returncode != 0
    assert "was not made by this command" in run.stderr
    assert path.read_bytes() == before


def test_a_bad_line_of_orders_is_named_before_anything_is_placed(tmp_path: Path) -> None:
    orders = tmp_path / "orders.txt"
    orders.write_text("00004 0001 19970101 2 29.33\n00004 0001 19970101 zero 29.33\n")
    run = demo(tmp_path / "demo.sqlite3", "--orders", str(orders))
    assert run.returncode != 0
    assert f"{orders}, line 2: units" in run.stderr
    assert not (tmp_path / "demo.sqlite3").exists()


@pytest.mark.parametrize(
    "option",
    [
        ("--faults", "1.5"),
        ("--faults", "nan"),
        ("--limit", "0"),
        ("--workers", "2"),
        ("--kill-workers",),
        ("--kill-workers", "0"),
        ("--settings", "testproject.settings"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    run = demo(tmp_path / "demo.sqlite3", *option)
    assert run.returncode != 0
    assert option[0] in run.stderr
    assert not (tmp_path / "demo.sqlite3").exists()


def test_the_admin_opens_for_the_user_that_was_printed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(tmp_path / "demo.sqlite3", port) as printed:
        name, password = re.search(r"user (\w+), password (\w+)", printed).groups()  # type: ignore[union-attr]
        cookies = CookieJar()
        browser, login = build_opener(HTTPCookieProcessor(cookies)), f"http://127.0.0.1:{port}/admin/login/"
        browser.open(login).read()
        token = next(cookie.value for cookie in cookies if cookie.name == "csrftoken")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token, "next": "/admin/shop/order/"}
        with browser.open(login, urlencode(form).encode()) as page:
            assert page.url.endswith("/admin/shop/order/")
            assert "3 orders" in page.read().decode()
        assert browser.open(f"http://127.0.0.1:{port}/static/admin/css/base.css").status == 200


@contextmanager
def served(database: Path, port: int) -> Iterator[str]:
    """What the command printed until its server was bound."""
    arguments = command(database, "--limit", "3", "--faults", "0", "--serve", "--port", str(port))
    with subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_ctrl_c,
    ) as process:
        assert process.stdout
        printed = ""
        try:
            for line in process.stdout:
                printed += line
                if "Quit the server" in line:
                    break
            else:
                pytest.fail(f"the server did not start: {printed}")
            yield printed
        finally:
            process.send_signal(signal.SIGINT)
