"""The pictures of docs/images: play the demo, then look at the Dagster UI with Debian's Chromium, as a person would; `make test` never calls this."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file

from lsm_core.processes import LOOPBACK, free_port  # noqa: E402
from scripts.browser import Pages, opened_browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
DRAWN_MS = 2_500
"""Plots of many points are drawn a little after the page."""


def play(folder: Path, port: int) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start the demo and wait until it says where to click; its pages by name."""
    command = [sys.executable, "-m", "lsm_core.cli", "demo", "--port", str(port), "--folder", str(folder)]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert demo.stdout is not None
    pages: dict[str, str] = {}
    for line in demo.stdout:
        print(line, end="", flush=True)
        found = re.match(r"\s+(\S.*?)\s{2,}(http://\S+)", line)
        if found:
            pages[found.group(1)] = found.group(2)
        if line.startswith("Ctrl-C"):
            return demo, pages
    sys.exit(f"screenshots: the demo ended with code {demo.wait()} before its UI was up")


def main() -> int:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dredge-screenshots-") as scratch:
        demo, pages = play(Path(scratch) / "demo", port)
        try:
            with opened_browser(f"http://{LOOPBACK}:{port}", IMAGES) as browser:
                pictures(browser, {what: where.removeprefix(browser.url) for what, where in pages.items()})
        finally:
            demo.terminate()  # the demo ends what it started
            try:
                demo.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(demo.pid, signal.SIGKILL)
    return 0


def pictures(browser: Pages, pages: Mapping[str, str]) -> None:
    """Lineage, a layout with its plots, a tick that asked for a run, the blocking check."""
    layout = next(where for where in pages.values() if "_layout?" in where).split("?")[0]
    sensor = next(where for where in pages.values() if "/sensors/" in where)
    browser.opens(pages["lineage"], "flight_status")
    taken(browser, "lineage")
    browser.opens(f"{layout}?view=overview", "read amplification")
    browser.page.get_by_text("Plots", exact=True).first.click()
    browser.page.get_by_text("Events", exact=True).last.click()
    taken(browser, "asset")
    browser.opens(f"{layout}?view=checks&checkDetail=merged_view_unchanged", "merged_view_unchanged")
    taken(browser, "checks")
    browser.opens(sensor, "View logs")
    acted = (
        browser.page.locator("tr, [class*=row], [class*=Row]")
        .filter(has_text=re.compile(r"[1-9] requested|[1-9] run"))
        .filter(has_text="View logs")
    )
    row = acted.last if acted.count() else browser.page.locator("body")
    row.get_by_text("View logs").first.click()
    taken(browser, "tick")


def taken(browser: Pages, name: str) -> None:
    """Take a picture; what looks ill on it is said."""
    browser.page.wait_for_timeout(DRAWN_MS)
    browser.picture(name)
    ill = browser.ills()
    print(f"screenshots: docs/images/{name}.png{f', which shows {ill}' if ill else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
