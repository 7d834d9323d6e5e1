"""Append tables without buckets: rows are split by partition only, everything is bucket 0 (Java `UnawareAppendTableRowKeyExtractor`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.metadata.store import TableStore
from lsm_core.write.bucket.fixed import partition_codes, split_by_code

TOTAL_BUCKETS: Final = -1
"""What `_TOTAL_BUCKETS` says for such tables (format.md 19.7)."""


def groups(store: TableStore, batch: pa.Table) -> Iterator[tuple[bytes, int, np.ndarray[Any, Any]]]:
    """(partition, 0, row positions in arrival order) of every partition that ``batch`` touches."""
    codes, partitions = partition_codes(store.schema, batch)
    yield from split_by_code(codes.astype(np.int64), 1, partitions)
