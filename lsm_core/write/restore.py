"""State of a bucket that a writer needs before its first row: the next sequence number and the number of buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, WriterStale
from lsm_core.format.manifest import HASH_INDEX, DataFileMeta, IndexFileMeta, IndexManifestEntry, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import MAX_SEQUENCE, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import require_in_place, vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import BucketMode, TableStore

_COLUMNS = ("partition", "bucket", "total_buckets", "max_sequence_number")


@dataclass
class BucketHistory:
    """Largest sequence number of each bucket; a partition's manifests are read when the partition is first written.

    Attributes:
        store: the table.
        ignore: whether existing files are ignored, so that sequence numbers start at 0; for an overwrite.
        follow: whether each look-up reads the newest snapshot, for a long-lived writer. If False, the snapshot that was
            the newest at the first look-up is used for all buckets (batch writer).
        hash_entries: HASH index files by partition, set by :meth:`of_whole_table`; None if not read.
    """

    store: TableStore
    ignore: bool = False
    follow: bool = False
    hash_entries: Mapping[bytes, Sequence[IndexManifestEntry]] | None = None
    _snapshot: Snapshot | None = None
    _opened: bool = False
    _everything: pa.Table | None = None
    _known: dict[bytes, dict[int, int]] = field(default_factory=dict)
    _seen: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of_whole_table(cls, store: TableStore, ignore: bool = False) -> BucketHistory:
        """Return the largest sequence numbers of all buckets at the newest snapshot.

        Processes that receive this object read no manifests. Raises :class:`CorruptFile`.

        Args:
            store: the table.
            ignore: whether existing files are ignored, so that sequence numbers start at 0; for an overwrite.
        """
        history = cls(store, ignore=ignore, _snapshot=snapshots.latest(store), _opened=True)
        if store.bucket_mode is BucketMode.DYNAMIC:
            latest = None if ignore else history._snapshot
            history.hash_entries = {} if latest is None else hash_entries(manifests.index_entries(store, latest))
        numbered = store.bucket_mode not in (BucketMode.UNAWARE, BucketMode.POSTPONE)
        if history._snapshot is not None and not ignore and numbered:
            entries = live_entries(store, history._snapshot, columns=list(_COLUMNS))
            newest = entries.group_by(list(_COLUMNS[:3])).aggregate([("max_sequence_number", "max")])
            history._everything = newest.rename_columns(list(_COLUMNS))
        return history

    @property
    def snapshot(self) -> Snapshot | None:
        """Snapshot that the last :meth:`look_up` read, or None for an empty table."""
        return self._snapshot

    def look_up(self, partitions: Iterable[bytes]) -> None:
        """Read the history of several partitions at once, because each call reads the manifests.

        Raises:
            WriterStale: a partition's files have a number of buckets that differs from the table's option.
        """
        if self.ignore:
            return
        if self.follow or not self._opened:
            self._snapshot, self._opened = snapshots.latest(self.store), True
        if self._snapshot is None:
            return
        snapshot_id = self._snapshot.id if self.follow else None
        new = [p for p in set(partitions) if p not in self._known or (self.follow and self._seen.get(p) != snapshot_id)]
        if not new:
            return
        self._known.update({partition: {} for partition in new})
        self._seen.update(dict.fromkeys(new, self._snapshot.id))
        if self._everything is not None:
            entries = self._everything.filter(
                pc.is_in(self._everything.column("partition"), pa.array(new, pa.binary()))
            )
        else:
            entries = live_entries(self.store, self._snapshot, partitions=new, columns=list(_COLUMNS))
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))  # postponed rows are in none yet
        configured = self.store.options.bucket
        others = entries.filter(pc.not_equal(entries.column("total_buckets"), configured))
        if self.store.bucket_mode is not BucketMode.UNAWARE and others.num_rows:
            recorded = others.column("total_buckets")[0].as_py()
            where = partition_text(self.store.schema, others.column("partition")[0].as_py(), self.store.options)
            raise WriterStale(
                f"table {self.store.name}: {f'partition {where}' if where else 'it'} has {recorded} buckets, the "
                f"option 'bucket' is {configured}: rescale or overwrite it, or set the option to {recorded}"
            )
        newest = entries.group_by(["partition", "bucket"], use_threads=False).aggregate(
            [("max_sequence_number", "max")]
        )
        for bucket in newest.to_pylist():  # one item a bucket
            self._known[bucket["partition"]][bucket["bucket"]] = bucket["max_sequence_number_max"]

    def next_sequence(self, partition: bytes, bucket: int) -> int:
        """Return the first free sequence number of a bucket: the largest sequence number + 1, or 0 if it is empty.

        With `write.sequence-number-init-mode` = snapshot, the result is also larger than the sequence number in the
        snapshot's properties.

        Raises:
            WriterStale: the partition's files have a number of buckets that differs from the table's option.
        """
        self.look_up([partition])
        named = -1
        if self._snapshot is not None and self.store.options.get("write.sequence-number-init-mode") == "snapshot":
            text = (self._snapshot.properties or {}).get(MAX_SEQUENCE, "-1")
            try:
                named = int(text)
            except ValueError as error:
                path = self.store.snapshot_path(self._snapshot.id)
                raise CorruptFile(path, f"property {MAX_SEQUENCE} is not a number: {text!r}") from error
        return max(self._known.get(partition, {}).get(bucket, -1), named) + 1

    def buckets_of(self, partition: bytes) -> list[int]:
        """Return the numbers of a partition's buckets that have files, ascending.

        Raises:
            WriterStale: the partition's files have a number of buckets that differs from the table's option.
        """
        self.look_up([partition])
        return sorted(self._known.get(partition, {}))

    def forget(self, partition: bytes) -> None:
        """Forget the sequence numbers of a partition's buckets; they are read again for the partition's next row."""
        self._known.pop(partition, None)
        self._seen.pop(partition, None)


def hash_entries(entries: Iterable[IndexManifestEntry]) -> dict[bytes, list[IndexManifestEntry]]:
    """Return the HASH index files of each partition, ordered by bucket."""
    by_partition: dict[bytes, list[IndexManifestEntry]] = {}
    for entry in entries:
        if entry.index_type == HASH_INDEX:
            by_partition.setdefault(entry.partition, []).append(entry)
    for mine in by_partition.values():
        mine.sort(key=lambda entry: entry.bucket)
    return by_partition


def live_vectors(
    store: TableStore, snapshot: Snapshot | None, files: Mapping[tuple[bytes, int], Sequence[DataFileMeta]]
) -> dict[tuple[bytes, int], tuple[IndexFileMeta, ...]]:
    """Return the index files with deletion vectors of some buckets at a snapshot.

    Nothing is read unless the table has deletion vectors.

    Args:
        store: the table.
        snapshot: the snapshot, or None for an empty table.
        files: live data files by partition and bucket.

    Raises:
        CorruptFile: an index file cannot be read, or a vector's bucket is not that of its data file.
    """
    file_set = set(files)
    if snapshot is None or not file_set or not store.options.deletion_vectors_enabled:
        return {}
    placed = [(*place, file.file_name) for place, listed in files.items() for file in listed]
    columns = zip(("partition", "bucket", "file_name"), zip(*placed, strict=True), strict=True) if placed else ()
    if entries := {name: list(values) for name, values in columns}:
        require_in_place(store, snapshot, pa.table(entries))
    return vector_files(store, snapshot, {partition for partition, _ in file_set}, {bucket for _, bucket in file_set})


def live_files(
    store: TableStore, snapshot: Snapshot | None, places: Iterable[tuple[bytes, int]]
) -> dict[tuple[bytes, int], list[DataFileMeta]]:
    """Return the live files of each (partition, bucket) in ``places`` at a snapshot, with one read of the manifests.

    Without a snapshot every bucket has an empty list.
    """
    files_by_place: dict[tuple[bytes, int], list[DataFileMeta]] = {place: [] for place in places}
    if snapshot is None or not files_by_place:
        return files_by_place
    entries = live_entries(
        store,
        snapshot,
        partitions=sorted({p for p, _ in files_by_place}),
        buckets=sorted({b for _, b in files_by_place}),
    )
    for partition, bucket, _, group in bucket_groups(entries):
        if (partition, bucket) in files_by_place:
            files_by_place[partition, bucket] = [entry.file for entry in table_to_entries(group)]
    return files_by_place
