"""Packages whose public names are imported on first use: every name is there, is what type checkers see, and hides no module."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import typing
import zipfile
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
    tree = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    seen = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(dir(package)) == set(package.__all__)
    for item in dir(package):
        value = getattr(package, item)
        if typing.get_origin(value) is None:  # a type alias has the name of its origin
            assert getattr(value, "__name__", item) == item
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not set(dir(package)) & modules  # an imported module would stand in place of the name


def test_a_package_in_an_archive_has_its_lazy_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's workers import the wheel from an archive: a stub there has no path of its own
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as archive:
        archive.writestr(
            "archived/__init__.py",
            "from lsm_core.lazy_names import lazy_names\n__getattr__, __dir__, __all__ = lazy_names(__name__)\n",
        )
        archive.writestr("archived/__init__.pyi", "from archived.inner import NAME as NAME\n")
        archive.writestr("archived/inner.py", "NAME = 7\n")
    monkeypatch.syspath_prepend(tmp_path / "wheel.zip")
    package = importlib.import_module("archived")
    assert package.NAME == 7
    assert package.__all__ == ["NAME"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    import lsm_core

    with pytest.raises(AttributeError, match="module 'lsm_core' has no attribute 'Tabel'"):
        lsm_core.Tabel  # noqa: B018
