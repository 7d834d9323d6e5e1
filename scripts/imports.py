"""The import graph of the project, with late and type-checking imports; the source of pictures and of tests."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lsm_core", "dredge", "platform_core", "assets", "checks", "orchestration")
"""Folders of the code. The last four are `dredge.…`: links in the folder dredge make them parts of that package."""
PLATFORM = "dredge"
_ENGINE = "lsm_core"


def modules() -> dict[str, Path]:
    """Return the path of every module by its dotted name; a package is its ``__init__``."""
    paths = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            inside = () if package in {_ENGINE, PLATFORM} else (PLATFORM,)
            name = ".".join((*inside, *path.relative_to(ROOT).with_suffix("").parts))
            paths[name.removesuffix(".__init__")] = path
    return paths


def imports_of(tree: ast.AST, known: Mapping[str, object]) -> set[str]:
    """Return the modules among ``known`` that a module imports: at the top, for type checkers or in a function."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imported.add(inner if inner in known else node.module)
    return imported & known.keys()


def parse_with_stub(path: Path) -> ast.Module:
    """Return the statements of a module, and of its stub if a package lists its lazy names there."""
    stub = path.with_suffix(".pyi")
    return ast.parse(path.read_text() + (stub.read_text() if stub.exists() else ""))


@cache
def _imports_in(path: Path) -> tuple[ast.ImportFrom, ...]:
    """Return every `from ... import` of a file, including late and type-checking ones."""
    return tuple(node for node in ast.walk(parse_with_stub(path)) if isinstance(node, ast.ImportFrom))


def sources_of(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Return the modules among ``known`` that define the names a file imports, followed through packages."""
    sources = set()
    for node in _imports_in(path):
        if node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                sources.add(inner if inner in known else _defining(node.module, alias.name, known))
    return sources


def _defining(module: str, name: str, known: Mapping[str, Path]) -> str:
    """Return the module that defines the name in ``module``, which may be the module itself."""
    for node in _imports_in(known[module]):
        if node.module in known and node.module != module:
            names = {alias.asname or alias.name for alias in node.names}
            if name in names:
                return _defining(node.module, name, known)
    return module


@cache
def graph() -> dict[str, set[str]]:
    """Return the imported modules of every module."""
    known = modules()
    return {name: imports_of(parse_with_stub(path), known) - {name} for name, path in known.items()}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other (strongly connected components of more than one)."""
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
    """Return the layers of pyproject.toml, highest first.

    import-linter checks the same layers, but not imports for type checkers.
    """
    with (ROOT / "pyproject.toml").open("rb") as source:
        contracts = tomllib.load(source)["tool"]["importlinter"]["contracts"]
    (contract,) = (candidate for candidate in contracts if candidate["id"] == "layers")
    return [{part.strip() for part in line.replace(":", "|").split("|")} for line in contract["layers"]]


def upward(imports: Mapping[str, set[str]], order: list[set[str]]) -> Iterator[str]:
    """Yield every import of a module from a higher layer."""

    def level(name: str) -> int | None:
        parts = name.split(".")
        prefixes = {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
        return next((at for at, rooms in enumerate(order) if rooms & prefixes), None)

    for name, used in imports.items():
        for other in used:
            mine, theirs = level(name), level(other)
            if mine is not None and theirs is not None and theirs < mine:
                yield f"{name} -> {other}"
