"""Merging of manifest entries: additions and deletions of the same file cancel out (format.md 4.3, Java `FileEntry.mergeEntries`)."""

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
    """What is left of entries in commit order (any columns of `ENTRY_SCHEMA` that hold the identity; all are kept).

    An ADD cancels with a later DELETE of the same identity (partition, bucket, level, name, extra files, embedded index,
    external path); a DELETE without its ADD stays. Raises :class:`CorruptFile` naming the file when it is added while
    already there.
    """
    names = pc.dictionary_encode(one_array(table.column("file_name")))
    codes = numpy_array(names.indices)
    counts = np.bincount(codes, minlength=1)
    if not (counts > 1).any():
        return table
    # Only names met twice can be the same file; a name alone (an upgrade repeats it) is not yet an identity.
    repeated = np.flatnonzero(counts[codes] > 1)
    groups = identity_codes(table.take(arrow_array(repeated)))
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    position = places_within(sizes)
    kinds = numpy_array(table.column("kind"))[repeated][order]
    # Each entry flips presence: an addition puts the file there, a deletion takes it away or is itself remembered.
    doubled = (kinds == ADD) & (position % 2 == 1)
    if doubled.any():
        row = int(repeated[order[int(np.argmax(doubled))]])
        raise CorruptFile(path, f"file {table.column('file_name')[row].as_py()} is added twice")
    keep = np.ones(table.num_rows, np.bool_)
    keep[repeated] = False
    odd = sizes % 2 == 1
    keep[repeated[order[(starts + sizes - 1)[odd]]]] = True
    return table.filter(arrow_array(keep))


def identity_codes(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number per entry that is equal exactly where Java's `FileEntry.Identifier` is."""
    codes: np.ndarray[tuple[int], np.dtype[np.int64]]
    codes = numpy_array(pc.dictionary_encode(identity_rows(table)).indices).astype(np.int64)
    return codes


def identity_rows(table: pa.Table) -> pa.Array:
    """Java's `FileEntry.Identifier` of each entry, as bytes."""
    columns = [
        table.column("partition"),
        table.column("bucket"),
        table.column("level"),
        table.column("file_name"),
        # File names hold no NUL, so this joins lists without mixing them up.
        pc.binary_join(table.column("extra_files"), arrow_scalar("\0")),
        table.column("embedded_index"),
        table.column("external_path"),
    ]
    return one_array(encode_rows(columns, [_BYTES, _INT, _INT, _TEXT, _TEXT, _BYTES, _TEXT]))


class HashesMeet(ValueError):
    """Two identities have one 64-bit hash: they are to be merged by :func:`merge_entries`."""


class Cancelling:
    """Entries of manifests, one after another in commit order, without what ``deletions`` (DELETE entries) take away.

    For the whole of a snapshot this gives what :func:`merge_entries` leaves of it, in memory of the deletions alone: an ADD stays once as
    many of its identity came before it as are deleted.
    """

    def __init__(self, deletions: pa.Table) -> None:
        """Raises HashesMeet."""
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
        """The ADD entries of the next manifest that stay, in order."""
        added = entries.filter(pc.equal(entries.column("kind"), ADD))
        if not len(self._hashes) or not added.num_rows:
            return added
        rows = identity_rows(added)
        hashes = xxhash64(rows)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        near = np.flatnonzero(self._hashes[places] == hashes)
        same = numpy_array(pc.equal(rows.take(arrow_array(near)), self._rows.take(arrow_array(places[near]))))
        near = near[same]
        if not len(near):
            return added
        which = places[near]
        order = np.argsort(which, kind="stable")
        ids, counts = np.unique(which[order], return_counts=True)
        rank = places_within(counts)
        keep = np.ones(added.num_rows, np.bool_)
        keep[near[order]] = rank >= np.repeat(self._left[ids], counts)
        self._left[ids] = np.maximum(self._left[ids] - counts, 0)
        return added.filter(arrow_array(keep))


__all__ = ["Cancelling", "HashesMeet", "identity_codes", "identity_rows", "merge_entries"]
