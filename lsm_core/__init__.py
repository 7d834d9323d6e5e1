"""The LSM table engine. Its public names are imported on first use, so `import lsm_core` is cheap."""

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

__version__ = "0.1.0"

# Merging allocates and frees the same few megabytes again and again, for which the C library's allocator is best.
# Arrow's preferred allocator returns them and faults them in again, in huge pages: a tenth of a compaction's time, a
# quarter of its memory. Arrow reads this variable when it is loaded; if that is already done, see `storage.allocator`.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "table.catalog": ("Catalog",),
        "table.definition": ("Schema",),
        "table.schema_change": ("SchemaChange",),
        "table.table": ("Table",),
    },
)
