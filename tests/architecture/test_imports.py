"""The picture of the imports: no circle among modules, and no arrow up the layers, imports for type checkers and late ones included."""

from __future__ import annotations

import ast

from scripts.imports import circles, graph, imports_of, layers, modules, upward


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
