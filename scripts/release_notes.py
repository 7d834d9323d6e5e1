"""Print the notes of one version from CHANGELOG.md: `python scripts/release_notes.py 0.1.0`, for the workflow `release`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def project_version() -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def extract_notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading.

    Args:
        changelog: text of CHANGELOG.md; the heading of a version is `## 0.1.0` or `## 0.1.0 (2026-11-27)`.
        version: version without a leading v.

    Raises:
        SystemExit: If the changelog has no section of the version, or the section is empty.
    """
    heading = re.search(rf"^## {re.escape(version)}(?: \([\d-]+\))?[ \t]*$", changelog, re.MULTILINE)
    if heading is None:
        raise SystemExit(f"CHANGELOG.md has no section {version}: run `towncrier build --version {version}` first")
    notes = re.split(r"^## ", changelog[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not notes:
        raise SystemExit(f"the section {version} of CHANGELOG.md is empty")
    return notes


def main(arguments: list[str]) -> None:
    """Print the notes of the version in `arguments`, which must be the version of pyproject.toml."""
    if len(arguments) != 1:
        raise SystemExit("usage: python scripts/release_notes.py VERSION")
    (version,) = arguments
    if version != project_version():
        raise SystemExit(
            f"the tag is v{version}, and pyproject.toml has version {project_version()}: change one of them"
        )
    print(extract_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version))


if __name__ == "__main__":
    main(sys.argv[1:])
