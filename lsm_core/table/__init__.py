"""The outermost names of the engine: catalogs, tables, their definitions, and the verbs to look after them."""

from __future__ import annotations

from lsm_core.table.catalog import Catalog
from lsm_core.table.definition import Schema
from lsm_core.table.schema_change import SchemaChange
from lsm_core.table.table import Table

__all__ = ["Catalog", "Schema", "SchemaChange", "Table"]
