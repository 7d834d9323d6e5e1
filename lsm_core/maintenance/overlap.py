"""Number of sorted runs that a key lookup must read: a sweep over the key ranges of the files, from metadata only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array, offsets_from, one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.schema import TableSchema
from lsm_core.merge.sort_key import key_bytes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def overlaps(schema: TableSchema, entries: pa.Table, rows: Ints, codes: Ints, groups: int) -> tuple[Ints, Floats]:
    """Compute per bucket the largest number of sorted runs over any key, and the mean over its stored rows.

    Files of one run never share a key, so the files over a key are the runs over it.

    Args:
        schema: schema of the table.
        entries: entries sorted by bucket, with the columns min_key and max_key (BinaryRows).
        rows: stored rows of each entry.
        codes: bucket of each entry, dense from 0 to ``groups`` - 1.
        groups: number of buckets.

    Raises:
        UnsupportedFeature: the key types have no order here.
    """
    types = list(schema.trimmed_key_types)
    blobs = pa.concat_arrays([one_array(entries.column(name)) for name in ("min_key", "max_key")])
    ranks = pc.rank(pa.array(key_bytes(decode_rows(blobs, types)), pa.binary()), tiebreaker="dense")
    order = numpy_array(ranks).astype(np.int64)
    return depths(order[: len(codes)], order[len(codes) :], rows, codes, groups)


def depths(low: Ints, high: Ints, rows: Ints, codes: Ints, groups: int) -> tuple[Ints, Floats]:
    """Compute the same for closed ranges of numbers >= 0; every bucket has a file.

    The mean is weighted by rows: bounds of the bucket's files cut each range into intervals, over which the file's rows
    are taken as evenly spread. A range of one key counts with the runs over that key.

    Args:
        low: lower bounds.
        high: upper bounds.
        rows: stored rows of each range.
        codes: bucket of each range, dense from 0.
        groups: number of buckets.
    """
    span = int(high.max()) + 1
    places, ranks = np.unique(np.concatenate([codes * span + low, codes * span + high]), return_inverse=True)
    first, last = ranks[: len(codes)], ranks[len(codes) :]
    # Every range opened in a bucket ends in it, so one running sum serves all buckets.
    opened = np.bincount(first, minlength=len(places) + 1)
    at_bound = np.cumsum(opened - np.bincount(last + 1, minlength=len(places) + 1))[:-1]
    between = np.cumsum(opened - np.bincount(last, minlength=len(places) + 1))
    most = np.maximum.reduceat(at_bound, np.searchsorted(places, np.arange(groups) * span))
    before = offsets_from(between)
    mean = np.where(last > first, (before[last] - before[first]) / np.maximum(last - first, 1), at_bound[first])
    weights = np.maximum(rows, 1).astype(np.float64)
    total = np.bincount(codes, weights=weights, minlength=groups)
    return most.astype(np.int64), np.bincount(codes, weights=weights * mean, minlength=groups) / total
