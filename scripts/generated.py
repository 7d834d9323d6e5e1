"""Everything under docs/ that is generated from the code, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestration.verbs.policies import schema_text
from scripts.pages import architecture_page, cli_page, options_page
from scripts.pictures import DRAWN

DOCS = Path(__file__).resolve().parents[1] / "docs"

GENERATED: dict[Path, Callable[[], str]] = {
    DOCS / "cli.md": cli_page,
    DOCS / "options.md": options_page,
    DOCS / "policies.schema.json": schema_text,
    DOCS / "architecture.md": lambda: architecture_page((DOCS / "architecture.md").read_text("utf-8")),
    **{DOCS / place: draw for place, draw in DRAWN.items()},
}


def stale() -> list[Path]:
    """Generated files whose text is not what the code gives now."""
    return [path for path, make in GENERATED.items() if not path.is_file() or path.read_text("utf-8") != make()]


def write() -> list[Path]:
    """Write those that are stale anew; returns which."""
    written = []
    for path, make in GENERATED.items():
        text = make()
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    return written
