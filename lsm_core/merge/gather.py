"""Late gathering: the winners' rows, all columns at once, in output batches of bounded size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_core.merge.comparable import Ints
from lsm_core.merge.rows import Rows

OUTPUT_ROWS = 131_072


def emit(rows: Rows, picked: Ints) -> list[pa.RecordBatch]:
    """The ``picked`` rows, in that order, as batches of at most 131,072 rows."""
    if len(picked) == 0:
        return []
    batch = rows.batch()
    first = int(picked[0])
    if len(picked) == int(picked[-1]) - first + 1 and bool((np.diff(picked) == 1).all()):
        return [
            batch.slice(first + at, min(OUTPUT_ROWS, len(picked) - at)) for at in range(0, len(picked), OUTPUT_ROWS)
        ]
    return [batch.take(pa.array(picked[at : at + OUTPUT_ROWS])) for at in range(0, len(picked), OUTPUT_ROWS)]
