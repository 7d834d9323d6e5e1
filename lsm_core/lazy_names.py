"""Import of a package's public names on first use (PEP 562), so that importing the package is cheap."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, for the names that its stub `__init__.pyi` imports.

    The stub is the only list of the names; type checkers read the stub too. The package's loader reads the stub,
    because `lsm_core` may be imported from an archive (a wheel that Spark sends to its workers).
    """
    module = sys.modules[package]
    loader: Any = module.__loader__
    stub = ast.parse(loader.get_data(f"{module.__file__}i"))
    modules = {
        alias.name: str(node.module) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    def fetch(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return fetch, lambda: sorted(modules), sorted(modules)
