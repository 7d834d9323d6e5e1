"""File indexes: whether a file's bloom filter, bitmap or range index rules out every row that the filter asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate

Mask = np.ndarray[Any, Any]


def embedded_mask(store: TableStore, entries: pa.Table, predicate: Predicate, mask: Mask) -> Mask:
    """``mask`` without the files whose index, kept inside the manifest, proves that no row matches."""
    return mask
