"""Merging of manifest entries: an addition and a deletion of the same file cancel each other (format.md 4.3).

Source: ``FileEntry.mergeEntries``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array, places_within
from lsm_core.errors import CorruptFile
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.file_meta import ADD
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.types import MAX_LENGTH, DataType, TypeRoot

_TEXT = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_BYTES = DataType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_INT = DataType(TypeRoot.INT)


def merge_entries(table: pa.Table, path: str = "") -> pa.Table:
    """Return the remaining entries after cancelling additions and deletions of the same file.

    An ADD cancels with a later DELETE of the same identity (partition, bucket, level, name, extra files, embedded
    index, external path). A DELETE without its ADD stays.

    Args:
        table: entries in commit order, with any columns of `ENTRY_SCHEMA` that include the identity; all columns are
            kept.
        path: path for messages.

    Returns:
        The remaining entries.

    Raises:
        CorruptFile: a file is added while it exists; the message names the file.
    """
    names = pc.dictionary_encode(one_array(table.column("file_name")))
    codes = numpy_array(names.indices)
    counts = np.bincount(codes, minlength=1)
    if not (counts > 1).any():
        return table
    # Only repeated names can be the same file, but an upgrade repeats a name too, so the identity decides.
    repeated = np.flatnonzero(counts[codes] > 1)
    groups = identity_codes(table.take(arrow_array(repeated)))
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    position = places_within(sizes)
    kinds = numpy_array(table.column("kind"))[repeated][order]
    # Each entry toggles presence: an addition adds the file, a deletion removes it or is itself kept.
    is_second_addition = (kinds == ADD) & (position % 2 == 1)
    if is_second_addition.any():
        row = int(repeated[order[int(np.argmax(is_second_addition))]])
        raise CorruptFile(path, f"file {table.column('file_name')[row].as_py()} is added twice")
    keep = np.ones(table.num_rows, np.bool_)
    keep[repeated] = False
    is_odd = sizes % 2 == 1
    keep[repeated[order[(starts + sizes - 1)[is_odd]]]] = True
    return table.filter(arrow_array(keep))


def identity_codes(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number per entry that is equal for equal identities (Java `FileEntry.Identifier`)."""
    codes: np.ndarray[tuple[int], np.dtype[np.int64]]
    codes = numpy_array(pc.dictionary_encode(identity_rows(table)).indices).astype(np.int64)
    return codes


def identity_rows(table: pa.Table) -> pa.Array:
    """Return Java's `FileEntry.Identifier` of each entry, as bytes."""
    columns = [
        table.column("partition"),
        table.column("bucket"),
        table.column("level"),
        table.column("file_name"),
        # File names contain no NUL, so the joined lists are unambiguous.
        pc.binary_join(table.column("extra_files"), arrow_scalar("\0")),
        table.column("embedded_index"),
        table.column("external_path"),
    ]
    return one_array(encode_rows(columns, [_BYTES, _INT, _INT, _TEXT, _TEXT, _BYTES, _TEXT]))


class HashesMeet(ValueError):
    """Hash collision of two identities; use :func:`merge_entries` instead."""


class Cancelling:
    """Filter that removes the files of DELETE entries from manifests.

    The manifests are passed one after another in commit order.

    For a whole snapshot the result equals :func:`merge_entries`, but only the deletions are in memory. An ADD stays if
    all deletions of its identity have cancelled earlier ADD entries.
    """

    def __init__(self, deletions: pa.Table) -> None:
        """Index the DELETE entries.

        Raises:
            HashesMeet: two identities have the same 64-bit hash.
        """
        rows = identity_rows(deletions)
        codes = numpy_array(pc.dictionary_encode(rows).indices)
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        distinct = rows.take(arrow_array(first))
        hashes = xxhash64(distinct)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._left = hashes[order], counts[order]
        self._rows = distinct.take(arrow_array(order))
        if len(np.unique(self._hashes)) < len(self._hashes):
            raise HashesMeet("two deleted files have one hash")

    def survivors(self, entries: pa.Table) -> pa.Table:
        """Return the remaining ADD entries of the next manifest, in order."""
        added = entries.filter(pc.equal(entries.column("kind"), ADD))
        if not len(self._hashes) or not added.num_rows:
            return added
        rows = identity_rows(added)
        hashes = xxhash64(rows)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        candidates = np.flatnonzero(self._hashes[places] == hashes)
        is_equal = numpy_array(
            pc.equal(rows.take(arrow_array(candidates)), self._rows.take(arrow_array(places[candidates])))
        )
        candidates = candidates[is_equal]
        if not len(candidates):
            return added
        deletion_index = places[candidates]
        order = np.argsort(deletion_index, kind="stable")
        ids, counts = np.unique(deletion_index[order], return_counts=True)
        rank = places_within(counts)
        keep = np.ones(added.num_rows, np.bool_)
        keep[candidates[order]] = rank >= np.repeat(self._left[ids], counts)
        self._left[ids] = np.maximum(self._left[ids] - counts, 0)
        return added.filter(arrow_array(keep))
