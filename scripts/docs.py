"""`make docs`: writes the generated pages and pictures anew, builds the site, and checks every link, offline.

python scripts/docs.py             write, build, check
python scripts/docs.py --write     only write what is generated
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
    """Write, build, check; the exit code is not zero when a link leads nowhere."""
    try:
        for path in write():
            print(f"docs: {path.relative_to(ROOT)} was out of date: written anew")
    except ValueError as error:
        sys.exit(f"docs: {error}")
    if "--write" in sys.argv[1:]:
        return
    dead = [link for page in (ROOT / "README.md", ROOT / "CHANGELOG.md") for link in dead_links(page)]
    if dead:
        sys.exit("docs: links that lead nowhere: " + ", ".join(dead))
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"docs: {ROOT / 'build' / 'site' / 'index.html'}")


def dead_links(page: Path) -> list[str]:
    """Relative links of a page outside docs/ whose file or heading is not there (mkdocs looks after those inside)."""
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
    """Anchors of a page's headings, as the site (and code hosts) name them."""
    titles = re.findall(r"^#{1,6} +(.+?)\s*$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


if __name__ == "__main__":
    main()
