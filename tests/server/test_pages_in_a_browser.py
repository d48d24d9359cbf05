"""The page behind a resume link in a real browser (W5): by keyboard, on a phone, without script."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, async_playwright, expect

import bide
from bide.testing import world
from bide.testing.world import World
from tests.server.test_form_pages import INJECTED, ODD_NAMES, injected, many
from tests.support.doors import served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip
PATIENCE_MS = 120_000
DESKTOP, PHONE = 1280, 390

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here (apt-get install chromium)"),
]

app = bide.App("refunds", store="memory://")
LINKS: dict[str, str] = {}


class Contact(msgspec.Struct):
    email: str
    may_call: bool = False


class Refund(msgspec.Struct, kw_only=True):
    """One of each kind of field; the browser knows nothing of the pattern."""

    invoice: Annotated[str, msgspec.Meta(pattern=r"^R-\d+$", description="R- and digits, as it stands on the paper")]
    approved: bool
    amount: int
    reason: Literal["broken", "late", "other"]
    size: Literal["xs", "s", "m", "l", "xl", "xxl"] = "m"
    extras: list[Literal["voucher", "flowers"]] = []
    due: date | None = None
    tags: list[str] = []
    contact: Contact | None = None
    more: Any = None
    notes: Annotated[str, msgspec.Meta(max_length=2000, description="Anything else?")] = ""


def keep_link(name: str, url: str) -> None:
    LINKS[name] = url


@app.workflow("refund")
async def refund(step: bide.Step, name: str) -> Any:
    callback = await step.callback(
        "form", timeout="1d", returns=Refund, title="Refund the order?", description="Ann sent it back. " * 8
    )
    await step.run("tell", keep_link, name, callback.url)
    return await callback


@app.workflow("anything")
async def anything(step: bide.Step, name: str) -> Any:
    callback = await step.callback("form", timeout="1d", returns=Any, title="Is there anything to add?")
    await step.run("tell", keep_link, name, callback.url)
    return await callback


TITLE = " ".join(INJECTED)
SCHEMAS: dict[str, dict[str, Any]] = {
    "odd names": ODD_NAMES,
    "many fields": many(120, 2),
    "too many fields": many(120, 101),
    "injected": {
        "type": "object",
        "required": [f"group {n}" for n in range(len(INJECTED))],
        "properties": {f"group {n}": injected(text) for n, text in enumerate(INJECTED)},
    },
}


@app.workflow("odd")
async def odd(step: bide.Step, name: str) -> Any:
    callback = await step.callback("form", timeout="1d", returns=SCHEMAS[name], title=TITLE, description=TITLE)
    await step.run("tell", keep_link, name, callback.url)
    return await callback


class Desk:
    """A world whose HTTP API listens on a socket, and the browser that looks at it."""

    def __init__(self, world: World, url: str, browser: Browser) -> None:
        self.world = world
        self._url = url
        self._browser = browser

    async def asked(self, name: str, definition: str = "refund") -> tuple[str, str]:
        """The id of a run that waits, and the link that answers it."""
        run = await self.world.start(definition, name)
        return run.id, f"{self._url}/resume/{LINKS[name].rpartition('/')[2]}"

    @asynccontextmanager
    async def tab(
        self,
        link: str,
        width: int = DESKTOP,
        *,
        script: bool = True,
        policy: bool = True,
        dialogs: list[str] | None = None,
    ) -> AsyncIterator[Page]:
        """A page that is open; without its *policy*, whatever script is in it runs. What it alerts is in *dialogs*."""
        context = await self._browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=script, locale="en-GB", bypass_csp=not policy
        )
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()

        async def dismiss(dialog: Dialog) -> None:
            if dialogs is not None:
                dialogs.append(dialog.message)
            await dialog.dismiss()

        page.on("dialog", dismiss)
        await page.goto(link)
        try:
            yield page
        finally:
            await context.close()

    async def status(self, run: str) -> str:
        await self.world.settle()
        return (await self.world.get(run)).status


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    expect.set_options(timeout=PATIENCE_MS)
    async with world(app) as w, served(w) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        yield Desk(w, url, browser)
        await browser.close()


async def fill(page: Page, invoice: str = "R-7", amount: str = "12") -> None:
    await page.get_by_label("Invoice").fill(invoice)
    await page.get_by_role("group", name="Approved").get_by_label("Yes").check()
    await page.get_by_label("Amount").fill(amount)
    await page.get_by_label("late").check()
    await page.get_by_label("Size").select_option("m")


async def send(page: Page) -> None:
    await page.get_by_role("button", name="Send answer").click()


async def has_no_sideways_scroll(page: Page) -> bool:
    widths = await page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return bool(widths[0] <= widths[1])


async def test_a_form_is_answered_with_the_keyboard_alone(desk: Desk) -> None:
    """W5: Tab reaches each field in the order in which they stand, Enter sends."""
    run, link = await desk.asked("keyboard")
    async with desk.tab(link) as page:
        press: Callable[[str], Awaitable[None]] = page.keyboard.press
        for typed in ("R-42", None, "30", None, "m"):  # invoice, approved, amount, reason, size
            await press("Tab")
            await (page.keyboard.type(typed) if typed else press("Space"))
        for _ in range(30):
            await press("Tab")
            if await page.evaluate("document.activeElement.tagName") == "BUTTON":
                break
        await press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("Thank you")
    result = await desk.world.result(run)
    assert (result["invoice"], result["approved"], result["amount"]) == ("R-42", True, 30)
    assert (result["reason"], result["size"]) == ("broken", "m")


async def test_what_is_wrong_is_said_beside_its_field_and_what_was_typed_stays(desk: Desk) -> None:
    """W5: nothing is decided by it, and the corrected form is taken."""
    run, link = await desk.asked("wrong")
    async with desk.tab(link) as page:
        await fill(page, invoice="seven")
        await page.get_by_label("Notes").fill("two\nlines")
        await send(page)
        await expect(page.get_by_role("alert")).to_contain_text("look at the answers again")
        invoice = page.get_by_label("Invoice")
        await expect(page.locator(".field", has=invoice).locator(".error")).to_have_text(re.compile(r"\S"))
        await expect(page.locator(".error")).to_have_count(1)
        await expect(invoice).to_have_attribute("aria-invalid", "true")
        await expect(invoice).to_have_value("seven")
        await expect(page.get_by_label("Notes")).to_have_value("two\nlines")
        await expect(page.get_by_label("late")).to_be_checked()
        assert await desk.status(run) == "waiting"

        await invoice.fill("R-8")
        contact = page.get_by_role("group", name="Contact")
        await contact.get_by_label("Yes").check()
        await send(page)  # half of a group: the e-mail address is missing
        await expect(contact.locator(".error")).to_have_text(re.compile(r"\S"))
        await contact.get_by_label("Email").fill("ann@example.com")
        await send(page)
        await expect(page.get_by_role("status")).to_contain_text("Thank you")
    result = await desk.world.result(run)
    assert (result["invoice"], result["notes"]) == ("R-8", "two\nlines")


async def test_a_phone_without_script_is_enough(desk: Desk) -> None:
    """W5: nothing scrolls sideways at 390 px, neither the form nor what is said afterwards."""
    run, link = await desk.asked("phone")
    async with desk.tab(link, PHONE, script=False) as page:
        assert await has_no_sideways_scroll(page)
        await fill(page, invoice="n" * 200)
        await send(page)
        await expect(page.get_by_role("alert")).to_be_visible()
        assert await has_no_sideways_scroll(page)
        await fill(page, amount="5")
        await send(page)
        await expect(page.get_by_role("status")).to_contain_text("Thank you")
        assert await has_no_sideways_scroll(page)
    assert (await desk.world.result(run))["amount"] == 5


async def test_every_field_has_a_name_for_those_who_do_not_see_it(desk: Desk) -> None:
    """W5: a label for each input, a legend for each group of them."""
    _, link = await desk.asked("labels")
    async with desk.tab(link) as page:
        fields = await page.locator("input:not([type=hidden]), select, textarea").all()
        groups = await page.get_by_role("group").all()
        assert (len(fields), len(groups)) == (17, 5)
        for each in [*fields, *groups]:
            await expect(each).to_have_accessible_name(re.compile(r"\S"))
        await expect(page.get_by_label("Invoice")).to_have_accessible_description(re.compile("R- and digits"))


async def test_W5_a_field_is_described_also_where_its_name_has_a_space(desk: Desk) -> None:
    """W5: what is wanted and what is wrong is read out with it."""
    _, link = await desk.asked("odd names", "odd")
    async with desk.tab(link) as page:
        name = page.get_by_label("Full name")
        await expect(name).to_have_accessible_description("As in the passport")
        await page.locator("form").evaluate("form => { form.noValidate = true; }")
        await send(page)
        await expect(name).to_have_accessible_description("As in the passport Please fill this in.")
        group = page.get_by_role("group", name="Tab and line")
        await expect(group).to_have_accessible_description("Of two lines")


PROVOKE = """() => {
    for (const each of document.querySelectorAll("*")) {
        each.focus?.();
        for (const kind of ["mouseover", "focus", "click"])
            if (kind !== "click" || each.tagName === "A") each.dispatchEvent(new Event(kind));
    }
}"""


async def test_T20_nothing_that_anybody_wrote_runs_in_the_page(desk: Desk) -> None:
    """T20: not even where the policy of the page is ignored, neither in the form nor in what it says afterwards."""
    run, link = await desk.asked("injected", "odd")
    alerted: list[str] = []
    async with desk.tab(link, policy=False, dialogs=alerted) as page:
        await expect(page.get_by_role("heading")).to_have_text(TITLE)
        await page.evaluate(PROVOKE)
        texts = await page.locator("textarea, input[type=text]").all()
        assert len(texts) >= len(INJECTED) * 5
        await page.locator("form").evaluate("form => { form.noValidate = true; }")
        await send(page)
        await expect(page.get_by_role("alert")).to_contain_text("look at the answers again")
        await page.evaluate(PROVOKE)
        await page.evaluate("new Promise(done => setTimeout(done))")
    assert alerted == []
    assert await desk.status(run) == "waiting"


async def test_looking_decides_nothing_and_a_second_answer_is_told_so(desk: Desk) -> None:
    """W5, law 10: GET may come as often as it likes; of two answers the first stands."""
    run, link = await desk.asked("twice")
    async with desk.tab(link) as page, desk.tab(link) as other:
        await page.reload()
        assert await desk.status(run) == "waiting"
        await fill(page, amount="1")
        await fill(other, amount="2")
        await send(page)
        await expect(page.get_by_role("status")).to_contain_text("Thank you")
        await send(other)
        await expect(other.get_by_role("alert")).to_contain_text("the first answer stands")
        await other.goto(link)
        await expect(other.get_by_role("alert")).to_contain_text("answered already")
        await expect(other.get_by_role("button")).to_have_count(0)
    assert (await desk.world.result(run))["amount"] == 1


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
async def test_every_page_has_its_picture(desk: Desk, width: int, tmp_path: Path) -> None:
    """W5: to be looked at in the folder that `BIDE_SCREENSHOTS` names; and nothing scrolls sideways on any of them."""
    folder = Path(os.environ.get("BIDE_SCREENSHOTS") or tmp_path)
    _, link = await desk.asked(f"pictures at {width}")
    _, open_link = await desk.asked(f"more pictures at {width}", "anything")
    _, odd_link = await desk.asked("odd names", "odd")
    _, many_link = await desk.asked("many fields", "odd")
    _, too_many_link = await desk.asked("too many fields", "odd")

    async def picture(page: Page, name: str) -> None:
        assert await page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
        assert await has_no_sideways_scroll(page), name

    async with desk.tab(link, width, script=False) as page:
        await picture(page, "form")
        await fill(page, invoice="seven")
        await send(page)
        await expect(page.get_by_role("alert")).to_be_visible()  # a click does not wait for the page that it leads to
        await picture(page, "wrong")
        await page.get_by_label("Invoice").fill("R-7")
        await send(page)
        await expect(page.get_by_role("status")).to_contain_text("Thank you")
        await picture(page, "thanks")
        await page.goto(link)
        await picture(page, "gone")
        await page.goto(f"{link}x")
        await picture(page, "broken-link")
        await page.goto(open_link)
        await picture(page, "anything")
        await page.goto(odd_link)
        await picture(page, "odd-names")
        await page.goto(many_link)
        await picture(page, "many-fields")
        await page.goto(too_many_link)
        await picture(page, "too-many-fields")
        await page.goto(f"{link.partition('/resume')[0]}/docs")
        await picture(page, "docs")
