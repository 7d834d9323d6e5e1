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

__version__ = "0.1.0"

# Of Arrow's allocators the C library's suits merging, which takes and frees the same few megabytes again and again: the one that
# Arrow prefers gives them back and faults them in anew, in huge pages, for a tenth of a compaction's time and a quarter of its memory.
# Arrow reads this when it is loaded; where that came first `storage.allocator` sees to it.
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
