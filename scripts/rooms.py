"""README.md of each room: its purpose, what may not be in it, where to begin, from the docstring of its package."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
ROOMS: Final = (
    "lsm_core/*",
    "platform_core",
    "platform_core/*",
    "assets",
    "checks",
    "orchestration",
    "orchestration/*",
)
_WRITTEN: Final = "<!-- Written by scripts/docs.py from the docstring of `__init__.py`: change that, not this page. -->"


def rooms() -> list[Path]:
    """Return the folders of all rooms: packages of the engine, and of the platform."""
    folders = (folder for pattern in ROOMS for folder in sorted(ROOT.glob(pattern)))
    return [folder for folder in folders if (folder / "__init__.py").is_file()]


def readme_text(folder: Path) -> str:
    """Return the README of a room.

    Args:
        folder: folder of the package.
    """
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    tests = next(
        (
            f"Its tests are in `{path.relative_to(ROOT).as_posix()}`."
            for path in (ROOT / "tests" / folder.name, ROOT / "tests" / folder.parent.name)
            if path.is_dir()
        ),
        "",
    )
    name = folder.relative_to(ROOT).as_posix()
    text = docstring.replace("``", "`")
    return "\n\n".join(filter(None, (_WRITTEN, f"# `{name}`", text, tests))) + "\n"


def readmes() -> dict[Path, Callable[[], str]]:
    """Return the README of each room with its generator."""
    return {folder / "README.md": partial(readme_text, folder) for folder in rooms()}
