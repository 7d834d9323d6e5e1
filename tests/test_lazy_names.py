"""Packages whose public names are imported on first use: every name is there, is what type checkers see, and hides no module."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAZY = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in sorted((ROOT / "lsm_core").rglob("__init__.py"))
    if "lazy_names(" in path.read_text()
]


def test_there_are_such_packages() -> None:
    assert {"lsm_core", "lsm_core.maintenance", "lsm_core.read", "lsm_core.table"} <= set(LAZY)


@pytest.mark.parametrize("name", LAZY)
def test_every_lazy_name_is_what_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told - {"errors"} == set(dir(package))
    for one in dir(package):
        assert getattr(package, one).__name__ == one if hasattr(getattr(package, one), "__name__") else True
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not set(dir(package)) & modules  # an imported module would stand in place of the name


def test_an_unknown_name_is_an_attribute_error() -> None:
    import lsm_core

    with pytest.raises(AttributeError, match="module 'lsm_core' has no attribute 'Tabel'"):
        lsm_core.Tabel  # noqa: B018
