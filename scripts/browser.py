"""A headless browser over the Dagster UI, as a newcomer meets it; playwright drives the Chromium that Debian ships (its own download is not needed)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # who looks at no page does not wait for it
    from playwright.sync_api import Locator, Page

SIZE: Final = {"width": 1440, "height": 900}
_PATIENCE_MS: Final = 60_000
_LOADED_MS: Final = 20_000
_DRAWN_MS: Final = 1_500
"""Plots, graphs and dialogues that fade in are drawn a little after their text is there."""
_ILL: Final = re.compile(
    r"\*\*|GraphQL error|Something went wrong|Join the Dagster|Never materialized|\bUnsynced\b|\bundefined\b"
)
"""What no page of a healthy table shows: markup, errors, the sign-up dialogue, states of an asset that nobody looked after."""


def chromium() -> str | None:
    """Return the path of the installed Chromium, None: there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Pages:
    """The UI at ``url`` in one browser window. Pictures go to ``folder`` (None: none are taken)."""

    page: Page
    url: str
    folder: Path | None = None

    def opens(self, address: str, *texts: str) -> None:
        """Open a page (its address without the server's) and wait until all ``texts`` are to be seen on it. Raises playwright's TimeoutError."""
        self.page.goto(f"{self.url}{address}", wait_until="domcontentloaded")
        self.shows(*texts)

    def shows(self, *texts: str) -> None:
        """Wait until all ``texts`` are to be seen, in whatever page or dialogue is open."""
        for text in texts:
            self.found(text).wait_for(timeout=_PATIENCE_MS)

    def found(self, text: str) -> Locator:
        """The first visible place of a text (part of an element's, letter case ignored)."""
        return self.page.get_by_text(text).filter(visible=True).first

    def clicks(self, text: str) -> None:
        """Click on the first visible place of a text."""
        self.found(text).click(timeout=_PATIENCE_MS)

    def ills(self) -> list[str]:
        """What is to be seen on the page and should not be."""
        return sorted(set(_ILL.findall(self.page.locator("body").inner_text())))

    def picture(self, name: str, around: str | None = None) -> None:
        """Take the picture of what is to be seen now, once it is drawn; scrolled to where the text ``around`` is."""
        if self.folder is None:
            return
        from playwright.sync_api import Error

        with suppress(Error):  # a page that is drawn anew meanwhile, or still loads, has its picture taken as it is
            if around is not None:
                self.found(around).scroll_into_view_if_needed(timeout=_LOADED_MS)
        self.page.wait_for_timeout(_DRAWN_MS)
        with suppress(Error):
            self.page.get_by_text("Loading").filter(visible=True).first.wait_for(state="hidden", timeout=_LOADED_MS)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(self.folder / f"{name}.png"))


@contextmanager
def opened_browser(url: str, folder: Path | None = None) -> Iterator[Pages]:
    """Open a window on the web server at ``url``. Raises FileNotFoundError where no Chromium is installed."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    if program is None:
        raise FileNotFoundError("no chromium found (Debian package: chromium)")
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=quiet)
        try:
            yield Pages(browser.new_page(viewport=SIZE), url, folder)  # type: ignore[arg-type]
        finally:
            browser.close()
