"""The picture of the imports: no circle among modules, and no arrow up the layers, imports for type checkers and late ones included."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from scripts.imports import ROOT, circles, graph, imports_of, layers, modules, upward
from tests.docs.pages import tracked


def test_no_module_reaches_itself() -> None:
    assert circles(graph()) == []


def test_no_import_goes_up() -> None:
    assert sorted(upward(graph(), layers())) == []


def test_every_room_of_the_engine_is_in_a_layer() -> None:
    rooms = {".".join(name.split(".")[:2]) for name in modules() if name.startswith("lsm_core.")}
    assert rooms == {room for line in layers() for room in line if room.startswith("lsm_core.")}


def test_a_circle_and_an_arrow_up_are_found() -> None:
    made = {"lsm_core.read.a": {"lsm_core.table.b"}, "lsm_core.table.b": {"lsm_core.read.a"}, "lsm_core.types.c": set()}
    assert circles(made) == [["lsm_core.read.a", "lsm_core.table.b"]]
    assert list(upward(made, layers())) == ["lsm_core.read.a -> lsm_core.table.b"]
    late = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lsm_core.types import c\n")
    assert imports_of(late, {"lsm_core.types": 0, "lsm_core.types.c": 0}) == {"lsm_core.types.c"}
    inside = ast.parse("def f():\n    import lsm_core.types\n")
    assert imports_of(inside, {"lsm_core.types": 0}) == {"lsm_core.types"}


ROOMS = ("orchestration", "platform_core", "assets", "checks")


def test_every_module_of_the_platform_has_one_name() -> None:
    assert {path.name for path in (ROOT / "dredge").iterdir() if path.is_symlink()} == set(ROOMS)
    pattern = re.compile(rf"^[ \t>]*(?:from|import)[ \t]+(?:{'|'.join(ROOMS)})[. \t\n]", re.MULTILINE)
    texts = {path: path.read_text("utf-8") for path in tracked() if path.suffix in {".py", ".pyi", ".md"}}
    assert [str(path) for path, text in texts.items() if pattern.search(text)] == []
    assert sum("from dredge." in text for text in texts.values()) > 150
    assert pattern.search(f"x = 1\n    from {ROOMS[2]}.demo import tables\n")


@pytest.mark.parametrize("room", ROOMS)
def test_the_folder_s_own_name_is_refused_with_the_right_one(room: str) -> None:
    command = [sys.executable, "-S", "-c", f"import {room}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert f"ImportError: `{room}` is now `dredge.{room}`" in result.stderr.splitlines()[-1]
