"""The facade of the engine: catalogs, tables, their definitions, and methods for every operation.

Names are imported on first use, so that listing a warehouse does not load the modules that write and alter tables. The
packages below `lsm_core.table` must not import this package; their functions take a `metadata.store.TableStore`.
Methods of the facade only check arguments and delegate. Begin with `table` and `catalog`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
