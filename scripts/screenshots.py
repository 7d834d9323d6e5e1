"""Pictures of docs/images: run the demo and take screenshots of the Dagster UI; `make test` never runs this."""

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
"""Delay for plots of many points, which are drawn after the page."""


def play(folder: Path, port: int) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start the demo and wait until it prints its pages; return the process and their addresses by name."""
    command = [sys.executable, "-m", "lsm_core.cli", "demo", "--port", str(port), "--folder", str(folder)]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert demo.stdout is not None
    pages: dict[str, str] = {}
    for line in demo.stdout:
        print(line, end="", flush=True)
        match = re.match(r"\s+(\S.*?)\s{2,}(http://\S+)", line)
        if match:
            pages[match.group(1)] = match.group(2)
        if line.startswith("Ctrl-C"):
            return demo, pages
    sys.exit(f"screenshots: the demo ended with code {demo.wait()} before its UI was up")


def main() -> int:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dredge-screenshots-") as scratch:
        demo, pages = play(Path(scratch) / "demo", port)
        try:
            with opened_browser(f"http://{LOOPBACK}:{port}", IMAGES) as browser:
                pictures(browser, {name: address.removeprefix(browser.url) for name, address in pages.items()})
        finally:
            demo.terminate()  # the demo stops its own processes
            try:
                demo.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(demo.pid, signal.SIGKILL)
    return 0


def pictures(browser: Pages, pages: Mapping[str, str]) -> None:
    """Take pictures of the lineage, a layout with its plots, a tick that requested a run, and the blocking check."""
    layout = next(address for address in pages.values() if "_layout?" in address).split("?")[0]
    sensor = next(address for address in pages.values() if "/sensors/" in address)
    browser.opens(pages["lineage"], "flight_status")
    take_picture(browser, "lineage")
    browser.opens(f"{layout}?view=overview", "read amplification")
    browser.page.get_by_text("Plots", exact=True).first.click()
    browser.page.get_by_text("Events", exact=True).last.click()
    take_picture(browser, "asset")
    browser.opens(f"{layout}?view=checks&checkDetail=merged_view_unchanged", "merged_view_unchanged")
    take_picture(browser, "checks")
    browser.opens(sensor, "View logs")
    acted = (
        browser.page.locator("tr, [class*=row], [class*=Row]")
        .filter(has_text=re.compile(r"[1-9] requested|[1-9] run"))
        .filter(has_text="View logs")
    )
    row = acted.last if acted.count() else browser.page.locator("body")
    row.get_by_text("View logs").first.click()
    take_picture(browser, "tick")


def take_picture(browser: Pages, name: str) -> None:
    """Take a picture and report defects that are visible on it."""
    browser.page.wait_for_timeout(DRAWN_MS)
    browser.picture(name)
    ill = browser.ills()
    print(f"screenshots: docs/images/{name}.png{f', which shows {ill}' if ill else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
