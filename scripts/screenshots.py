"""The pictures of docs/images: play the demo, then look at the Dagster UI with Debian's chromium, as a person would.

playwright drives the browser that Debian ships (its own download is not needed); `make test` never calls this.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from lsm_core.processes import free_port

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1600, "height": 1000}
PLAY_SECONDS = 600


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    sys.exit("screenshots: no chromium found (Debian package: chromium)")


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


def settled(page: Page, name: str) -> None:
    """Give plots and queries time to draw, then take the picture."""
    page.wait_for_timeout(4_000)
    page.screenshot(path=str(IMAGES / f"{name}.png"))
    print(f"screenshots: docs/images/{name}.png", flush=True)


def opened(page: Page, address: str, text: str) -> None:
    """Open a page and wait until its text is there."""
    page.goto(address, wait_until="domcontentloaded")
    page.get_by_text(text).first.wait_for(timeout=60_000)


def main() -> int:
    browser_path = chromium()
    IMAGES.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dredge-screenshots-") as scratch:
        demo, pages = play(Path(scratch) / "demo", port)
        try:
            address = f"http://127.0.0.1:{port}"
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=browser_path,
                    args=[
                        "--no-sandbox",
                        "--disable-gpu",
                        "--no-first-run",
                        "--disable-background-networking",
                        "--disable-sync",
                    ],
                )
                page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
                pictures(page, address, pages)
                browser.close()
        finally:
            demo.terminate()  # the demo ends what it started
            try:
                demo.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(demo.pid, signal.SIGKILL)
    return 0


def pictures(page: Page, address: str, pages: dict[str, str]) -> None:
    """Lineage, a layout with its plots, a tick that asked for a run, the blocking check."""
    layout = next(where for where in pages.values() if "_layout?" in where).split("?")[0]
    sensor = next(where for where in pages.values() if "/sensors/" in where)
    opened(page, f"{address}/asset-groups", "flight_status")
    settled(page, "lineage")
    opened(page, f"{layout}?view=overview", "read amplification")
    page.get_by_text("Plots", exact=True).first.click()
    page.get_by_text("Events", exact=True).last.click()
    settled(page, "asset")
    opened(page, f"{layout}?view=checks&checkDetail=merged_view_unchanged", "merged_view_unchanged")
    settled(page, "checks")
    opened(page, sensor, "View logs")
    acted = (
        page.locator("tr, [class*=row], [class*=Row]")
        .filter(has_text=re.compile(r"[1-9] requested|[1-9] run"))
        .filter(has_text="View logs")
    )
    row = acted.last if acted.count() else page.locator("body")
    row.get_by_text("View logs").first.click()
    settled(page, "tick")


if __name__ == "__main__":
    sys.exit(main())
