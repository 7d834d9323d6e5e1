"""Files under docs/, deploy/ and the packages that are generated from the code, and their generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dredge.orchestration.verbs.policies import schema_text
from scripts.dashboard import dashboard_text
from scripts.pages import architecture_page, cli_page, options_page
from scripts.pictures import DRAWN
from scripts.rooms import readmes

DOCS = Path(__file__).resolve().parents[1] / "docs"

GENERATED: dict[Path, Callable[[], str]] = {
    DOCS / "cli.md": cli_page,
    DOCS / "options.md": options_page,
    DOCS / "policies.schema.json": schema_text,
    DOCS.parent / "deploy" / "grafana" / "dredge.json": dashboard_text,
    DOCS / "architecture.md": lambda: architecture_page((DOCS / "architecture.md").read_text("utf-8")),
    **{DOCS / place: draw for place, draw in DRAWN.items()},
    **readmes(),
}


def stale() -> list[Path]:
    """Return the generated files whose text differs from the current output of their generators."""
    return [path for path, make in GENERATED.items() if not path.is_file() or path.read_text("utf-8") != make()]


def write() -> list[Path]:
    """Write the stale files; return their paths."""
    written = []
    for path, make in GENERATED.items():
        text = make()
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    return written
