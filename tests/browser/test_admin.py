"""An operator's way through the admin, in a real browser, with scripts, styles and forms."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client, override_settings
from django.urls import reverse
from pydantic import BaseModel, Field
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from django_reactor import Reactor, interrupt
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.integration.admin_support import LIST, Shipment, act_url, broken, page_url, row, stored
from tests.integration.test_admin_coordination import OUTBOX, Harbour, delivered, take

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 20
"""Seconds for a page to come."""
HAS_COME = "return !window.isLeft && document.readyState === 'complete'"


class Operator:
    """Somebody who may do everything, logged in."""

    def __init__(self, browser: Chrome, server: Any) -> None:
        self.browser, self.url = browser, server.url
        person = get_user_model().objects.create_superuser("operator", password=None)
        client = Client()
        client.force_login(person)
        self.open(reverse("admin:login"))
        browser.add_cookie({"name": settings.SESSION_COOKIE_NAME, "value": client.session.session_key, "path": "/"})

    def open(self, path: str) -> None:
        self.browser.get(self.url + path)

    def find(self, css: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def text(self) -> str:
        return str(self.find("#main").text)

    def click_through(self, css: str) -> None:
        """Click, and wait for the page that follows: this one bears a mark. Between the two the driver may complain."""
        self.browser.execute_script("window.isLeft = true")
        self.find(css).click()
        wait = WebDriverWait(self.browser, PATIENCE, ignored_exceptions=[WebDriverException])
        wait.until(lambda browser: browser.execute_script(HAS_COME))

    def picture(self, path: Path) -> None:
        assert self.browser.save_screenshot(str(path))
        assert path.stat().st_size > 10_000


@pytest.fixture
def operator(browser: Chrome, live_server: Any) -> Operator:
    return Operator(browser, live_server)


@pytest.fixture
def failed() -> Execution:
    with broken("book"):
        result = Shipment.using(tags=["north"]).run(parcel="P-17", token="hunter22")
    return stored(result)


def test_a_failed_execution_is_found_understood_and_retried(
    operator: Operator, failed: Execution, screenshots: Path
) -> None:
    operator.open(LIST)
    assert "no courier for P-17" in operator.text()
    operator.picture(screenshots / "list.png")

    operator.click_through(f'a[href*="{failed.pk}"]')
    assert "Failed in book" in operator.text()
    assert "hunter22" not in operator.browser.page_source
    operator.picture(screenshots / "failed.png")

    operator.click_through(f'form[action="{act_url(failed, "retry")}"] button')
    assert "The execution is now completed." in operator.text()
    operator.picture(screenshots / "retried.png")
    failed.refresh_from_db()
    assert failed.status == Status.COMPLETED


def test_undo_asks_for_a_reason_in_a_dialog_that_can_be_left(operator: Operator) -> None:
    done = Shipment.run(parcel="P-1")
    operator.open(page_url(done.execution_id))
    dialog = operator.find("#dialog-undo")
    assert not dialog.is_displayed()
    operator.find('.reactor-buttons [popovertarget="dialog-undo"]').click()
    assert dialog.is_displayed()
    operator.browser.switch_to.active_element.send_keys("sent ", "twice")  # the field has the focus
    assert operator.find("#reason-undo").get_attribute("value") == "sent twice"
    operator.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()
    assert stored(done).status == Status.COMPLETED

    operator.find('.reactor-buttons [popovertarget="dialog-undo"]').click()
    operator.click_through("#dialog-undo [type=submit]")
    assert "The execution is now undone." in operator.text()
    assert "sent twice" in operator.text()


def test_selected_rows_are_retried_after_a_confirmation(operator: Operator, failed: Execution) -> None:
    operator.open(LIST)
    operator.find(f'input.action-select[value="{failed.pk}"]').click()
    operator.find('select[name="action"] option[value="retry_selected"]').click()
    operator.click_through('button[name="index"]')
    assert "Runs it again in place" in operator.text()
    operator.click_through(".reactor-confirm [type=submit]")
    assert "The execution is now completed." in operator.text()


def test_folded_values_open_and_nothing_comes_from_elsewhere(operator: Operator, failed: Execution) -> None:
    operator.open(page_url(failed))
    backtrace = operator.find(".reactor-failure details:last-of-type")
    assert not backtrace.find_element(By.TAG_NAME, "pre").is_displayed()
    backtrace.find_element(By.TAG_NAME, "summary").click()
    assert backtrace.find_element(By.TAG_NAME, "pre").is_displayed()
    loaded = operator.browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert any(name.endswith("django_reactor/admin.css") for name in loaded)
    assert all(name.startswith(operator.url) for name in loaded)
    log: Any = operator.browser.get_log("browser")  # type: ignore[no-untyped-call]
    errors = [entry["message"] for entry in log if entry["level"] == "SEVERE"]
    assert [message for message in errors if "favicon.ico" not in message] == []


def test_what_an_execution_waits_for_is_told_and_leads_to_who_has_it(operator: Operator, screenshots: Path) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": OUTBOX}):
        holder, waiting = row(status=Status.RUNNING), Harbour.enqueue(berth="7")
        take("berth:7", holder.pk)
        operator.open(page_url(delivered(waiting)))
    told = operator.find("#coordination").text
    assert "lock 'berth:7' is held by another execution. It has tried once, and tries again in" in told
    assert "waits for this" in operator.find(".reactor-awaited").text
    for css in (".reactor-awaited th", ".reactor-awaited strong", ".reactor-awaited a", "#coordination .reactor-note"):
        assert contrast(operator.browser, css) >= 4.5, css
    operator.picture(screenshots / "coordination.png")
    operator.click_through(f'#coordination a[href="{page_url(holder)}"]')
    assert str(holder.pk) in operator.text()


class Purchase(Reactor[Any]):
    class Meta:
        app_label = "depot"

    class Decision(BaseModel):
        approved: bool
        limit: int = Field(default=10, ge=1, description="At most so many parcels.")

    @interrupt(payload=Decision, correlation_id="request-17", timeout=timedelta(days=3), max_attempts=3)
    def approval(self) -> None: ...


def test_an_interrupt_is_answered_and_a_wrong_answer_can_be_mended(operator: Operator, screenshots: Path) -> None:
    asked = stored(Purchase.run())
    operator.open(page_url(asked))
    field = operator.find(".reactor-question textarea")
    assert field.get_attribute("value") == '{\n  "approved": null,\n  "limit": 10\n}'
    operator.picture(screenshots / "asked.png")

    field.clear()
    field.send_keys('{"approved": true, "limit": 0}')
    operator.click_through(".reactor-question [type=submit]")
    assert "greater than or equal to 1" in operator.find(".reactor-question .errorlist").text
    field = operator.browser.switch_to.active_element  # what is wrong has the focus
    assert field.get_attribute("value") == '{"approved": true, "limit": 0}'
    assert contrast(operator.browser, ".reactor-question .errorlist li") >= 4.5
    operator.picture(screenshots / "refused.png")

    field.send_keys(Keys.END, Keys.BACKSPACE, Keys.BACKSPACE, "5}")
    operator.click_through(".reactor-question [type=submit]")
    assert "The answer is accepted" in operator.text()
    assert not operator.browser.find_elements(By.CSS_SELECTOR, ".reactor-question")
    operator.picture(screenshots / "answered.png")


def contrast(browser: Chrome, css: str) -> float:
    """The contrast ratio (WCAG 2) of an element's text on its background."""
    return float(
        browser.execute_script(
            """
            const parts = text => text.match(/[\\d.]+/g).map(Number);
            const light = text => parts(text).slice(0, 3).map(c => c / 255)
                .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            let element = document.querySelector(arguments[0]);
            const text = light(getComputedStyle(element).color);
            const ground_of = element => parts(getComputedStyle(element).backgroundColor);
            const clear = element => ground_of(element).length > 3 && ground_of(element)[3] === 0;
            while (clear(element)) element = element.parentElement;
            const ground = light(getComputedStyle(element).backgroundColor);
            return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
            """,
            css,
        )
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_enough_contrast_in_both_themes(operator: Operator, failed: Execution, theme: str) -> None:
    operator.open(page_url(failed))
    operator.browser.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    operator.browser.refresh()
    assert operator.find("html").get_attribute("data-theme") == theme
    for css in (
        ".reactor-badge",
        ".reactor-tag",
        ".reactor-quiet",
        ".reactor-failure h2",
        ".reactor-outcome-success",
        ".reactor-outcome-failure",
        ".reactor-rollback .reactor-section th",
        ".reactor-rollback .reactor-outcome-success",
        ".reactor-not-run th",
        ".reactor-why-not li",
        ".reactor-error summary",
    ):
        assert contrast(operator.browser, css) >= 4.5, css
