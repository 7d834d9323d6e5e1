"""The LSM table engine: its public names, fetched only when asked for, so that `import lsm_core` costs nothing."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm_core import errors as errors
    from lsm_core.table import Catalog as Catalog
    from lsm_core.table import Schema as Schema
    from lsm_core.table import SchemaChange as SchemaChange
    from lsm_core.table import Table as Table

# Arrow's allocator gives freed memory back after 10 ms and takes it anew page by page: a third of a compaction's time went
# there. It reads this when Arrow is loaded, so it has no effect where pyarrow was imported first.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")

_WHERE = {
    "Catalog": "lsm_core.table",
    "Schema": "lsm_core.table",
    "SchemaChange": "lsm_core.table",
    "Table": "lsm_core.table",
}

__all__ = ["Catalog", "Schema", "SchemaChange", "Table", "errors"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "errors":
        return import_module("lsm_core.errors")
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'lsm_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted(__all__)
