"""`make docs`: write the generated pages and pictures, build the site, and check every link, offline.

python scripts/docs.py             write, build, check

python scripts/docs.py --write     only write the generated pages
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.generated import write  # noqa: E402  (found from the top of the project)

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def main() -> None:
    """Write, build and check; exit with a code other than zero if a link is broken."""
    try:
        for path in write():
            print(f"docs: {path.relative_to(ROOT)} was out of date and is rewritten")
    except ValueError as error:
        sys.exit(f"docs: {error}")
    if "--write" in sys.argv[1:]:
        return
    dead = [link for page in (ROOT / "README.md", ROOT / "CHANGELOG.md") for link in dead_links(page)]
    if dead:
        sys.exit("docs: broken links: " + ", ".join(dead))
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"docs: {ROOT / 'build' / 'site' / 'index.html'}")


def dead_links(page: Path) -> list[str]:
    """Return relative links of a page outside docs/ whose file or heading does not exist; mkdocs checks the others."""
    dead = []
    for target in _LINK.findall(page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(f"{page.name}: {target}")
    return dead


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, named as by the site and by code hosts."""
    titles = re.findall(r"^#{1,6} +(.+?)\s*$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


if __name__ == "__main__":
    main()
