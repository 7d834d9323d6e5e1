"""The imports of the house as a graph, late ones and those for type checkers included: what pictures are drawn from and tests judge."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lsm_core", "orchestration", "assets", "checks")


def modules() -> dict[str, Path]:
    """Every module of the house by its dotted name; a package stands for its ``__init__``."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imports_of(tree: ast.AST, known: Mapping[str, object]) -> set[str]:
    """The modules among ``known`` that a module imports anywhere: at the top, for type checkers, inside a function."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known.keys()


@cache
def _imports_in(path: Path) -> tuple[ast.ImportFrom, ...]:
    """Every `from ... import` of a file, late ones and those for type checkers included."""
    tree = ast.parse(path.read_text())
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))


def sources_of(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules among ``known`` that define what a file imports: names from a package's face are followed to where they come from."""
    found = set()
    for node in _imports_in(path):
        if node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else _defining(node.module, alias.name, known))
    return found


def _defining(module: str, name: str, known: Mapping[str, Path]) -> str:
    """The module that gives ``module`` the name; itself when it defines it."""
    for node in _imports_in(known[module]):
        if node.module in known and node.module != module:
            given = {alias.asname or alias.name for alias in node.names}
            if name in given:
                return _defining(node.module, name, known)
    return module


@cache
def graph() -> dict[str, set[str]]:
    """For every module those it imports."""
    known = modules()
    return {name: imports_of(ast.parse(path.read_text()), known) - {name} for name, path in known.items()}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that reach themselves, in groups (strongly connected components of more than one)."""
    reach: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        waiting = list(imports[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += imports[name]
        reach[start] = seen
    groups = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in imports if a in reach[a]}
    return sorted(list(group) for group in groups)


def layers() -> list[set[str]]:
    """The layers of pyproject.toml, the highest first: what import-linter keeps, too, but not for type checkers' imports."""
    with (ROOT / "pyproject.toml").open("rb") as source:
        contracts = tomllib.load(source)["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["id"] == "layers")
    return [{part.strip() for part in line.replace(":", "|").split("|")} for line in contract["layers"]]


def upward(imports: Mapping[str, set[str]], order: list[set[str]]) -> Iterator[str]:
    """Every import of a module from a layer above."""

    def level(name: str) -> int | None:
        parts = name.split(".")
        prefixes = {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
        return next((at for at, rooms in enumerate(order) if rooms & prefixes), None)

    for name, used in imports.items():
        for other in used:
            mine, theirs = level(name), level(other)
            if mine is not None and theirs is not None and theirs < mine:
                yield f"{name} -> {other}"
