"""The report on all tables in a real browser: sorting, filters, details and keyboard, light and dark, narrow and wide.

`DREDGE_PICTURES` names a folder for pictures of the page (`make screenshots`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dredge.platform_core.report.model import ActionEntry
from dredge.platform_core.report.page import render_page
from scripts.browser import chromium
from tests.support.fleet import NOW_MS, STATES, invented_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed (Debian package: chromium)")
WIDE, NARROW, MIDDLE = (1600, 1000), (390, 844), (1000, 800)
HOSTILE = "shop.</script><img src=x onerror=document.title='owned'>" + "very_long_name_" * 9
SHOWN = f"{HOSTILE[:79]}…"
_CONTRAST = """() => {
  const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => { v /= 255;
    return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = element => { for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor; if (!/, 0\\)$/.test(color)) return color; } return 'rgb(255,255,255)'; };
  const poor = [];
  for (const element of document.querySelectorAll('body *')) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) || !element.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(element.className + ' ' + element.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return poor; }"""
"""Texts whose contrast with what is behind them is below 4.5, as WCAG 2.1 AA asks."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of 46 tables, of which one has a hostile name and a hostile error in its ledger."""
    fleet = invented_fleet(46, actions=12)
    entry = ActionEntry("r", NOW_MS, "compact", "failed", error="<script>document.title='owned'</script>")
    hostile = replace(fleet.tables[2], table=HOSTILE, reason=HOSTILE, owners=("<b>team",), entries=(entry,))
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(
        render_page(replace(fleet, tables=[*fleet.tables[:2], hostile, *fleet.tables[3:]], notes=["A note."]))
    )
    return page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Any]:
    """Open the page in a window of a size and scheme; the page must not report an error or ask for anything."""
    pages: list[Page] = []
    troubles: list[str] = []

    def open_page(size: tuple[int, int] = WIDE, scheme: Any = "light", view: str = "") -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request", lambda request: troubles.append(request.url) if request.url.split("#")[0] != address else None
        )
        page.goto(address + view)
        pages.append(page)
        return page

    yield open_page
    titles = {page.title() for page in pages}
    for page in pages:
        page.context.close()
    assert troubles == []
    assert titles == {"Dredge report: s3://lake/warehouse"}, "nothing of a table ran as a script"


def names(page: Page) -> list[str]:
    """Names of the visible tables in their order."""
    return list(page.eval_on_selector_all("#t>tbody:not([hidden]) .nm", "found => found.map(name => name.textContent)"))


def numbers(page: Page, column: int) -> list[float]:
    """Sort keys of the visible tables in a column; unknown ones are infinite."""
    keys = page.eval_on_selector_all("#t>tbody:not([hidden])", "bodies => bodies.map(body => body.dataset.k)")
    return [float(text) if (text := key.split("|")[column]) else float("inf") for key in keys]


def test_columns_sort_by_mouse_and_keyboard_and_say_so(opened: Any) -> None:
    page = opened()
    worst_first = names(page)
    assert worst_first[2] == SHOWN and len(worst_first) == 46
    header = page.locator("#t>thead th")
    score = header.filter(has_text="Score")
    assert header.nth(0).get_attribute("aria-sort") == "ascending"
    score.get_by_role("button").click()
    assert (score.get_attribute("aria-sort"), header.nth(0).get_attribute("aria-sort")) == ("descending", "none")
    known = [number for number in numbers(page, 2) if number != float("inf")]
    assert known == sorted(known, reverse=True) and len(known) == 44
    assert numbers(page, 2)[-2:] == [float("inf")] * 2, "tables that cannot be read come last"
    score.get_by_role("button").press("Enter")
    assert score.get_attribute("aria-sort") == "ascending"
    assert numbers(page, 2)[:44] == sorted(known)
    header.filter(has_text="Table").get_by_role("button").press("Space")
    assert names(page) == sorted(worst_first)
    page.get_by_label("Order").select_option("0+")
    assert names(page) == worst_first


def test_filters_search_and_states_combine_and_the_address_keeps_them(opened: Any) -> None:
    page = opened()
    fleet = invented_fleet(46, actions=12)
    due = [table.table for table in fleet.tables if table.state == "due"]
    chip = page.locator(".chip", has_text="due")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true" and names(page) == due
    assert page.locator("#shown").inner_text() == f"{len(due)} of 46 tables"
    page.locator(".chip", has_text="paused").click()
    both = [table.table for table in fleet.tables if table.state in {"due", "paused"}]
    assert sorted(names(page)) == sorted(both)
    page.get_by_label("Database").select_option(label="shop")
    of_shop = [name for name in both if name.startswith("shop.")]
    assert sorted(names(page)) == sorted(of_shop)
    page.get_by_label("Owner").select_option(label="ann@example.org")
    kept = [t.table for t in fleet.tables if t.table in of_shop and "ann@example.org" in t.owners]
    assert sorted(names(page)) == sorted(kept)
    link = page.evaluate("location.hash")
    again = opened(view=link)
    assert names(again) == names(page)
    page.locator("#all").click()
    page.get_by_label("Owner").select_option("")
    page.get_by_label("Database").select_option("")
    page.get_by_label("Search").fill("storage  MOVE")
    assert sorted(names(page)) == sorted(t.table for t in fleet.tables if "storage move" in t.reason)
    page.get_by_label("Search").fill("there is no such text")
    assert names(page) == [] and page.get_by_text("No table matches").is_visible()
    page.get_by_label("Search").fill("onerror=document.title")
    assert names(page) == [SHOWN]
    assert opened(view="#sort=%3Cimg%3E&database=x&state=y&q=").locator("#shown").inner_text() == "46 tables"


def test_details_open_by_mouse_and_keyboard(opened: Any) -> None:
    page = opened()
    name = page.locator(".nm").nth(5)
    details = page.locator("#t>tbody").nth(5).locator(".m")
    assert not details.is_visible() and name.get_attribute("aria-expanded") == "false"
    name.click()
    assert details.is_visible() and name.get_attribute("aria-expanded") == "true"
    assert details.locator(".l tbody tr").count() == 12
    assert "6 → 1" in details.inner_text() and "StorageFull: no space left on device" in details.inner_text()
    assert page.locator(f"#{name.get_attribute('aria-controls')}").is_visible()
    name.press("Enter")
    assert not details.is_visible()
    page.get_by_role("button", name="Open or close all").click()
    assert page.locator(".m").filter(visible=True).count() == 46
    page.get_by_role("button", name="Open or close all").click()
    assert page.locator(".m").filter(visible=True).count() == 0
    page.get_by_text("States, worst first").click()
    assert all(page.get_by_text(legend.text).filter(visible=True).count() for legend in STATES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, MIDDLE, NARROW, (320, 640)], ids=lambda size: str(size[0]))
def test_every_width_and_scheme_can_be_read(opened: Any, size: tuple[int, int], scheme: str) -> None:
    page = opened(size, scheme)
    page.locator(".nm").nth(2).click()
    page.locator(".nm").nth(5).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0], "no horizontal scrolling"
    assert page.evaluate(_CONTRAST) == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    first = page.locator(".r").nth(4)
    assert all(first.locator(f":nth-child({place})").first.is_visible() for place in range(1, 12))
    table = page.get_by_role("table").first
    assert table.get_by_role("rowheader").count() == 46, "the table stays a table for screen readers"
    pictures = os.environ.get("DREDGE_PICTURES")
    if pictures:
        Path(pictures).mkdir(parents=True, exist_ok=True)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=f"{pictures}/report-{size[0]}-{scheme}.png")


def test_it_prints_without_controls_and_works_without_scripts(browser: Browser, address: str, opened: Any) -> None:
    page = opened()
    page.emulate_media(media="print")
    assert not page.get_by_label("Search").is_visible() and page.locator(".r").first.is_visible()
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(address)
    assert plain.locator(".r").count() == 46 and plain.locator(".m").nth(3).is_visible(), "all details are open"
    context.close()


@pytest.mark.soak
def test_a_thousand_tables_filter_and_sort_without_delay(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_page(invented_fleet(1_000, actions=50)))
    page = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
    page.goto((tmp_path / "report.html").as_uri())
    page.get_by_label("Search").fill("table_0999")
    assert names(page) == ["events.table_0999"]
    page.get_by_label("Search").fill("")
    page.locator("#t>thead th").filter(has_text="Size").get_by_role("button").click()
    assert page.locator("#shown").inner_text() == "1000 tables"
    sizes = numbers(page, 8)
    known = [size for size in sizes if size != float("inf")]
    assert known == sorted(known, reverse=True) and len(sizes) == 1_000
    assert re.fullmatch(r"8-", page.get_by_label("Order").input_value())
    page.close()
