"""Public names of a package that are imported on first use (PEP 562), so that importing the package is cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names_of: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package with names that are imported on first use.

    Type checkers do not see these names, so the package repeats them below `if TYPE_CHECKING`, and a test compares the
    two.

    Args:
        package: name of the package.
        names_of: public names by module.

    Returns:
        The two functions.
    """
    modules = {name: module for module, names in names_of.items() for name in names}

    def fetch(name: str) -> Any:
        if name in modules:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return fetch, lambda: sorted(modules)
