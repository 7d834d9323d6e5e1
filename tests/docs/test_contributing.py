"""The recipes of docs/contributing.md, followed step by step in a copy of the house."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "contributing.md"
PACKAGES = ("lsm_core", "dredge", "platform_core", "assets", "checks", "orchestration")
_RECIPES = re.findall(r"^## (Add .*)$", PAGE.read_text("utf-8"), re.MULTILINE)


def _lines_of(recipe: str) -> range:
    """The lines of the page that belong to a recipe."""
    text = PAGE.read_text("utf-8").splitlines()
    start = text.index(f"## {recipe}")
    end = next((at for at in range(start + 1, len(text)) if text[at].startswith("## ")), len(text))
    return range(start + 1, end + 1)


def _change(house: Path, block: Block) -> None:
    """Make a new file, or apply the change that a diff shows: its lines that stay or go stand in the file once, in a row."""
    kind, place = block.mark.split(": ", 1)
    path = house / place
    if kind == "new":
        assert not path.exists(), f"{block.where}: {place} is there already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, "utf-8")
        return
    before = [line[1:] for line in block.code.splitlines(keepends=True) if line[0] in " -"]
    after = [line[1:] for line in block.code.splitlines(keepends=True) if line[0] in " +"]
    text = path.read_text("utf-8")
    assert text.count("".join(before)) == 1, f"{block.where}: {place} no longer holds these lines (once)"
    path.write_text(text.replace("".join(before), "".join(after)), "utf-8")


def _run(house: Path, block: Block) -> None:
    script = house / "last_step.py"
    script.write_text(block.code, "utf-8")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DREDGE_")}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=house,
        env={**kept, "PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block.where}:\n{done.stdout}\n{done.stderr}"


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    assert _RECIPES == [
        "Add a merge function",
        "Add an action",
        "Add a check",
        "Add a file format",
        "Add an option",
        "Add a verb to the command line",
        "Add a catalog",
        "Add a sensor",
    ]


@pytest.mark.parametrize("recipe", _RECIPES)
def test_a_recipe_works_in_a_copy_of_the_house(recipe: str, tmp_path: Path) -> None:
    lines = _lines_of(recipe)
    text = PAGE.read_text("utf-8").splitlines()[lines.start : lines.stop]
    steps = [line for line in text if re.match(r"\d+\. ", line)]
    assert 2 <= len(steps) <= 6
    for package in PACKAGES:
        # Compiled modules too, but those that another process is just writing: a change makes them stale.
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=shutil.ignore_patterns("*.pyc.*"))
    followed = [block for block in blocks(PAGE) if block.line in lines]
    assert followed[-1].mark == "run"
    for block in followed:
        if block.mark == "run":
            _run(tmp_path, block)
        else:
            _change(tmp_path, block)
