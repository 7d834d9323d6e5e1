"""Pictures of docs/images: run the demo and take screenshots of the Dagster UI; `make test` never runs this.

With the address of a demo that is up already (`scripts/screenshots.py http://127.0.0.1:3000`), no demo is started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file

from lsm_core.processes import LOOPBACK, free_port  # noqa: E402
from scripts.browser import Pages, opened_browser  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Locator

IMAGES = ROOT / "docs" / "images"
MOST_BYTES: Final = 200_000
"""Largest size of a picture, in bytes; readers load several on one page."""
DRAWN_MS = 2_500
"""Delay for plots of many points, which are drawn after the page."""
_GROW: Final = """dialog => {
  const log = dialog.querySelector('[class*=VirtualizedTable_container]');
  log.parentElement.style.height = `${log.parentElement.clientHeight + log.scrollHeight - log.clientHeight}px`;
}"""
"""Script that makes a tick's log as high as its lines: it scrolls itself to the end, and runs are its first lines."""
_ZOOM_STEPS: Final = 3
_GROUP: Final = "/locations/dredge/asset-groups/nyc/lineage"
_LAYOUTS: Final = "/assets/warehouse/nyc/"
_ACTING_TICKS: Final = "/locations/dredge/sensors/sorted_run?status=success"


def start_demo(folder: Path, port: int) -> subprocess.Popen[str]:
    """Start the demo and wait until its UI is up."""
    command = [sys.executable, "-m", "lsm_core.cli", "demo", "--port", str(port), "--folder", str(folder)]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert demo.stdout is not None
    for line in demo.stdout:
        print(line, end="", flush=True)
        if line.startswith("Ctrl-C"):
            return demo
    sys.exit(f"screenshots: the demo ended with code {demo.wait()} before its UI was up")


def main(arguments: list[str]) -> int:
    """Take all pictures and return the exit code: 1 if a picture shows a defect or is too large."""
    if arguments:
        return take_pictures(arguments[0].rstrip("/"))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dredge-") as scratch:
        demo = start_demo(Path(scratch) / "demo", port)
        try:
            return take_pictures(f"http://{LOOPBACK}:{port}")
        finally:
            demo.terminate()  # the demo stops its own processes
            try:
                demo.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(demo.pid, signal.SIGKILL)


def take_pictures(url: str) -> int:
    """Take pictures of lineage, a layout, its plots, its blocking check, and a tick that requested runs."""
    with opened_browser(url, IMAGES) as browser:
        page = browser.page
        browser.opens(_GROUP, "flight_status_layout")
        browser.clicks("Hide navigation")
        fit_graph(browser)
        problems = take_picture(browser, "lineage")
        browser.opens(f"{_LAYOUTS}carrier_daily_layout?view=overview", "next step")
        page.get_by_text("Metadata", exact=True).first.evaluate("element => element.scrollIntoView()")
        problems += take_picture(browser, "asset")
        browser.opens(f"{_LAYOUTS}flight_status_layout?view=overview", "read amplification")
        page.get_by_text("Plots", exact=True).first.click()
        page.get_by_text("Events", exact=True).last.click()
        page.get_by_text("read amplification", exact=True).first.evaluate("element => element.scrollIntoView()")
        problems += take_picture(browser, "plots")
        check = "view=checks&checkDetail=merged_view_unchanged"
        browser.opens(f"{_LAYOUTS}flight_status_layout?{check}", "have the same rows")
        problems += take_picture(browser, "checks")
        browser.opens(_ACTING_TICKS, "requested", "View logs")
        page.get_by_text("View logs").last.click()  # the oldest of the page: the daemon was busy then
        browser.shows(": run (")
        dialog = page.get_by_text("Logs for sorted_run").locator("xpath=ancestor::*[.//button[.='Done']][1]")
        page.wait_for_timeout(DRAWN_MS)
        dialog.evaluate(_GROW)
        problems += take_picture(browser, "tick", dialog)
    for problem in problems:
        print(f"screenshots: {problem}", flush=True)
    return 1 if problems else 0


def fit_graph(browser: Pages) -> None:
    """Zoom a lineage graph out, so that both assets of most tables are visible."""
    browser.page.wait_for_timeout(DRAWN_MS)
    zoom_out = browser.page.get_by_label("zoom_out").filter(visible=True).first
    for _ in range(_ZOOM_STEPS):
        zoom_out.click()


def take_picture(browser: Pages, name: str, part: Locator | None = None) -> list[str]:
    """Take a picture of the page, or of the element `part`.

    Returns:
        Defects that are visible on the page, and the size of a picture that is too large.
    """
    browser.page.wait_for_timeout(DRAWN_MS)
    browser.picture(name, part=part)
    size = (IMAGES / f"{name}.png").stat().st_size
    print(f"screenshots: docs/images/{name}.png, {size:,} bytes", flush=True)
    problems = [f"{name} shows {text!r}" for text in browser.ills()]
    return [*problems, f"{name} has {size:,} bytes > {MOST_BYTES:,}"] if size > MOST_BYTES else problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
