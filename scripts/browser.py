"""A headless browser for the Dagster UI; playwright drives Debian's Chromium, so that it need not download its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # keeps the import of playwright out of other uses
    from playwright.sync_api import Locator, Page

SIZE: Final = {"width": 1440, "height": 900}
_PATIENCE_MS: Final = 60_000
_LOADED_MS: Final = 20_000
_DRAWN_MS: Final = 1_500
"""Delay for plots, graphs and dialogues, which are drawn after their text."""
_ILL: Final = re.compile(
    r"\*\*|GraphQL error|Something went wrong|Join the Dagster|Never materialized|\bUnsynced\b|\bundefined\b"
)
"""Texts that no page of a healthy table shows: markup, errors, the sign-up dialogue, unknown states of assets."""


def chromium() -> str | None:
    """Return the path of the installed Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Pages:
    """The UI at ``url`` in one browser window; pictures are saved to ``folder``, or not taken if it is None."""

    page: Page
    url: str
    folder: Path | None = None

    def opens(self, address: str, *texts: str) -> None:
        """Open a page (address without the server) and wait until all ``texts`` are visible.

        Raises:
            playwright.sync_api.TimeoutError: a text did not appear in time.
        """
        self.page.goto(f"{self.url}{address}", wait_until="domcontentloaded")
        self.shows(*texts)

    def shows(self, *texts: str) -> None:
        """Wait until all ``texts`` are visible in the open page or dialogue."""
        for text in texts:
            self.locate(text).wait_for(timeout=_PATIENCE_MS)

    def locate(self, text: str) -> Locator:
        """Return the first visible element that contains a text, ignoring case."""
        return self.page.get_by_text(text).filter(visible=True).first

    def clicks(self, text: str) -> None:
        """Click on the first visible element that contains a text."""
        self.locate(text).click(timeout=_PATIENCE_MS)

    def ills(self) -> list[str]:
        """Return the texts on the page that indicate a defect."""
        return sorted(set(_ILL.findall(self.page.locator("body").inner_text())))

    def picture(self, name: str, around: str | None = None, part: Locator | None = None) -> None:
        """Take a picture of the page once it is drawn, scrolled to the text ``around``.

        Args:
            name: name of the picture.
            around: text to scroll to, or None.
            part: element to take a picture of, None for the whole window.
        """
        if self.folder is None:
            return
        from playwright.sync_api import Error

        with suppress(Error):  # a page that changes or still loads is pictured as it is
            if around is not None:
                self.locate(around).scroll_into_view_if_needed(timeout=_LOADED_MS)
        self.page.wait_for_timeout(_DRAWN_MS)
        with suppress(Error):
            self.page.get_by_text("Loading").filter(visible=True).first.wait_for(state="hidden", timeout=_LOADED_MS)
        self.folder.mkdir(parents=True, exist_ok=True)
        (part or self.page).screenshot(path=str(self.folder / f"{name}.png"))


@contextmanager
def opened_browser(url: str, folder: Path | None = None) -> Iterator[Pages]:
    """Open a window on the web server at ``url``.

    Raises:
        FileNotFoundError: no Chromium is installed.
    """
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
