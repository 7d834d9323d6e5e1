"""Options of tables and catalogs: one registry of every key, its type and default, and typed views over them."""

from __future__ import annotations

from lsm_core.options.catalog_options import CatalogOptions
from lsm_core.options.key import Key
from lsm_core.options.registry import ALIASES, ENUMS, REGISTRY, canonical
from lsm_core.options.table_options import TableOptions
from lsm_core.options.units import duration, memory_size, whole_number

__all__ = [
    "ALIASES",
    "ENUMS",
    "REGISTRY",
    "CatalogOptions",
    "Key",
    "TableOptions",
    "canonical",
    "duration",
    "memory_size",
    "whole_number",
]
