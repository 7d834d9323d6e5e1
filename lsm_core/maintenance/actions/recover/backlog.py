"""Backlog of level-0 files as columns (50 bytes per file), and the choice of files for one recovery pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.live_files import live_parts
from lsm_core.metadata.store import TableStore

Ints = npt.NDArray[np.int64]
Place = tuple[bytes, int]
_COLUMNS: Final = (
    "partition",
    "bucket",
    "level",
    "delete_row_count",
    "min_sequence_number",
    "max_sequence_number",
)


@dataclass(frozen=True, eq=False)
class Backlog:
    """Live files of a snapshot as columns: ``bucket``, ``manifest``, ``level`` and so on have one element per file.

    Attributes:
        snapshot: snapshot whose files are listed.
        places: the buckets, each as partition (serialised as in the manifest) and bucket number.
        manifests: names of the manifests; "" stands for files that were removed and added again.
        bucket: index of the file's bucket in ``places``.
        manifest: index of the file's manifest in ``manifests``.
        level: level of the file.
        retracts: whether the file may have retract rows (deletes or update-befores).
        first: smallest sequence number of the file.
        last: largest sequence number of the file.
    """

    snapshot: Snapshot
    places: list[Place]
    manifests: list[str]
    bucket: npt.NDArray[np.int32]
    manifest: npt.NDArray[np.int32]
    level: npt.NDArray[np.int16]
    retracts: npt.NDArray[np.bool_]
    first: Ints
    last: Ints

    @staticmethod
    def of(store: TableStore, snapshot: Snapshot) -> Backlog:
        """Read the backlog, one manifest at a time. Files of postponed rows are left out, as they have no bucket yet.

        Args:
            store: the table.
            snapshot: snapshot to read.

        Raises:
            CorruptFile: a manifest cannot be read.
        """
        places: dict[Place, int] = {}
        names: list[str] = []
        chunks: tuple[list[npt.NDArray[Any]], ...] = ([], [], [], [], [], [])
        for name, part in live_parts(store, snapshot, columns=_COLUMNS):
            part = part.filter(pc.greater_equal(part.column("bucket"), arrow_scalar(0, pa.int32())))
            count = part.num_rows
            deletes = pc.not_equal(pc.fill_null(part.column("delete_row_count"), arrow_scalar(1)), arrow_scalar(0))
            columns: tuple[npt.NDArray[Any], ...] = (
                _number_places(part, places).astype(np.int32),
                np.full(count, len(names), np.int32),
                numpy_array(part.column("level")).astype(np.int16),
                numpy_array(deletes),
                numpy_array(part.column("min_sequence_number")),
                numpy_array(part.column("max_sequence_number")),
            )
            for chunk, column in zip(chunks, columns, strict=True):
                chunk.append(column)
            names.append(name)
        return Backlog(snapshot, list(places), names, *map(_join_chunks, chunks))

    def level0_counts(self) -> Ints:
        """Return the number of level-0 files of each bucket."""
        counts: Ints = np.bincount(self.bucket[self.level == 0], minlength=len(self.places)).astype(np.int64)
        return counts

    def runs(self) -> Ints:
        """Return the number of sorted runs of each bucket: its level-0 files plus its non-empty higher levels."""
        upper = self.level > 0
        used = np.unique(self.bucket[upper].astype(np.int64) * 1024 + self.level[upper])
        runs: Ints = self.level0_counts() + np.bincount(used // 1024, minlength=len(self.places))
        return runs

    def cut(self, place: int, files: int) -> RecoveryCut:
        """Return the boundary between the ``files`` oldest level-0 files of a bucket and its newer level-0 files.

        Args:
            place: index of the bucket in ``places``.
            files: number of oldest files, smaller than the number of the bucket's level-0 files.
        """
        mine = (self.bucket == place) & (self.level == 0)
        first, last, retracts = self.first[mine], self.last[mine], self.retracts[mine]
        bound = int(np.partition(last, files - 1)[files - 1])
        older = last <= bound  # several files may have the same last number
        apart = int(older.sum()) == files and bool(first[~older].min() > bound)
        return RecoveryCut(bound, apart, bool(retracts[older].any()))

    def entries(self, store: TableStore, bounds: Mapping[int, int | None]) -> pa.Table:
        """Return manifest entries (`ENTRY_SCHEMA`) of some buckets.

        Only the manifests of the returned files are read, or all manifests if the manifest of a file is unknown.

        Args:
            store: the table.
            bounds: buckets to read, by index in ``places``. The value limits the level-0 files: files with a larger
                last sequence number are left out, None for no limit. Files above level 0 are always returned.

        Raises:
            CorruptFile: a manifest cannot be read.
        """
        limits = np.full(len(self.places), np.iinfo(np.int64).min, np.int64)
        for place, bound in bounds.items():
            limits[place] = np.iinfo(np.int64).max if bound is None else bound
        chosen = np.zeros(len(self.places), np.bool_)
        chosen[list(bounds)] = True
        rows = chosen[self.bucket] & ((self.level > 0) | (self.last <= limits[self.bucket]))
        listing = {self.manifests[number] for number in np.unique(self.manifest[rows]).tolist()}
        again = "" in listing  # the manifests of these files are not known
        numbers = {place: number for number, place in enumerate(self.places)}

        def keep_chosen(part: pa.Table) -> pa.Table:
            part = part.filter(pc.greater_equal(part.column("bucket"), arrow_scalar(0, pa.int32())))
            codes = _number_places(part, numbers)  # same snapshot: no bucket is new
            last, level = (numpy_array(part.column(name)) for name in ("max_sequence_number", "level"))
            return part.filter(arrow_array(chosen[codes] & ((level > 0) | (last <= limits[codes]))))

        only = None if again else listing
        parts = live_parts(store, self.snapshot, columns=ENTRY_SCHEMA.names, only=only, keep=keep_chosen)
        return pa.concat_tables([part for name, part in parts if name in listing])


@dataclass(frozen=True)
class RecoveryCut:
    """Boundary between the oldest level-0 files of a bucket and its newer level-0 files.

    Attributes:
        last: largest sequence number of the oldest files.
        apart: whether the smallest sequence number of every newer file is larger than ``last``, and the boundary does
            not divide files with the same largest sequence number.
        retracts: whether the oldest files may have retract rows (deletes or update-befores).
    """

    last: int
    apart: bool
    retracts: bool


def _join_chunks(chunks: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join the chunks into one array and clear them, so that only one column at a time is held twice."""
    column = np.concatenate(chunks) if chunks else np.zeros(0, np.int64)
    chunks.clear()
    return column


def _number_places(part: pa.Table, places: dict[Place, int]) -> Ints:
    """Return the index of each entry's bucket in ``places``; new buckets are added to ``places``.

    The loop has one step per bucket of the manifest, not one per entry.
    """
    if not part.num_rows:
        return np.zeros(0, np.int64)
    encoded = one_array(part.column("partition")).dictionary_encode()
    buckets = numpy_array(part.column("bucket")).astype(np.int64)
    pairs = numpy_array(encoded.indices).astype(np.int64) << 32 | buckets
    distinct, inverse = np.unique(pairs, return_inverse=True)
    partitions: Sequence[bytes] = encoded.dictionary.to_pylist()
    listed = ((partitions[pair >> 32], pair & 0xFFFFFFFF) for pair in distinct.tolist())
    codes: Ints = np.array([places.setdefault(place, len(places)) for place in listed], np.int64)
    numbers: Ints = codes[inverse]
    return numbers
