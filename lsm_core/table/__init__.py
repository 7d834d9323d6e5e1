"""The outermost names of the engine: catalogs, tables, their definitions, and the verbs to look after them.

Fetched on first use: who only looks over a warehouse need not wait for what writes, reads and alters tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core.table.catalog import Catalog as Catalog
    from lsm_core.table.definition import Schema as Schema
    from lsm_core.table.schema_change import SchemaChange as SchemaChange
    from lsm_core.table.table import Table as Table

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "catalog": ("Catalog",),
        "definition": ("Schema",),
        "schema_change": ("SchemaChange",),
        "table": ("Table",),
    },
)
