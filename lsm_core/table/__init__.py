"""The outermost names of the engine: catalogs, tables, their definitions, and the verbs to look after them.

Fetched on first use: who only looks over a warehouse need not wait for what writes, reads and alters tables.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
