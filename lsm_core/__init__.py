"""The LSM table engine: its public names, fetched only when asked for, so that `import lsm_core` costs nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core import errors as errors
    from lsm_core.table import Catalog as Catalog
    from lsm_core.table import Schema as Schema
    from lsm_core.table import SchemaChange as SchemaChange
    from lsm_core.table import Table as Table

# Arrow's allocator gives freed memory back after 10 ms and takes it anew page by page: a third of a compaction's time went
# there. It reads this when Arrow is loaded, so it has no effect where pyarrow was imported first.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "table.catalog": ("Catalog",),
        "table.definition": ("Schema",),
        "table.schema_change": ("SchemaChange",),
        "table.table": ("Table",),
    },
)
