"""No Python loop over rows on a data path: every call that turns a column into Python objects is listed with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.row_loop_exceptions import ALLOWED

ROOT = Path(__file__).resolve().parent.parent.parent / "lsm_core"
DATA_PATHS = ("merge", "files", "read", "compact", "write", "spark", "format/binary_row", "format/hashing")
SUSPECTS = {
    "to_pylist",
    "to_pydict",
    "iterrows",
    "itertuples",
    "vectorize",
    "as_py",
    "tolist",
    "iter_rows",
    "apply_along_axis",
}


def _data_files() -> Iterator[Path]:
    for name in DATA_PATHS:
        place = ROOT / name
        if place.is_dir():
            yield from sorted(place.rglob("*.py"))
        elif place.with_suffix(".py").is_file():
            yield place.with_suffix(".py")


def _suspicious(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """(enclosing function, line, what) of every suspect in a module."""
    stack: list[tuple[ast.AST, str]] = [(tree, "<module>")]
    while stack:
        node, function = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SUSPECTS:
            yield function, node.lineno, node.func.attr
        if isinstance(node, ast.For | ast.comprehension):
            iterated = node.iter
            zipped = (
                isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "zip"
            )
            if zipped and any(isinstance(argument, ast.Starred) for argument in iterated.args):
                yield function, iterated.lineno, "for ... in zip(*columns)"
        stack.extend((child, function) for child in ast.iter_child_nodes(node))


def _found() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path in _data_files():
        relative = path.relative_to(ROOT).as_posix()
        for function, line, what in _suspicious(ast.parse(path.read_text())):
            places.setdefault(f"{relative}: {function}", []).append(f"{relative}:{line} {what}")
    return places


def test_no_row_loop_on_a_data_path() -> None:
    unlisted = [f"{line} in {place}" for place, lines in _found().items() if place not in ALLOWED for line in lines]
    assert not unlisted, "row loops on a data path:\n" + "\n".join(sorted(unlisted))


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    found = _found()
    assert [place for place in ALLOWED if place not in found] == []
    assert all(len(reason) > 15 for reason in ALLOWED.values())


@pytest.mark.parametrize(
    "code",
    [
        "def f(t):\n    return t.to_pylist()",
        "def f(t):\n    for a, b in zip(*t.columns):\n        pass",
        "def f(t):\n    return [x for x in zip(*t)]",
        "def f(a):\n    return np.vectorize(g)(a)",
    ],
)
def test_the_lint_sees_a_row_loop(code: str) -> None:
    assert list(_suspicious(ast.parse(code)))


def test_the_lint_looks_at_every_room_it_names() -> None:
    seen = {path.relative_to(ROOT).as_posix() for path in _data_files()}
    for name in DATA_PATHS:
        assert any(file == f"{name}.py" or file.startswith(f"{name}/") for file in seen), name
