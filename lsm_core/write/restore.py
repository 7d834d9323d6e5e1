"""What a writer must know of a bucket before its first row: the next sequence number and the recorded bucket count (format.md 18b)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import WriterStale
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore

_COLUMNS = ("partition", "bucket", "total_buckets", "max_sequence_number")


@dataclass
class BucketHistory:
    """Sequence numbers of the table's buckets as of the writer's opening; partitions are looked up when first written.

    ``ignore``: an overwrite starts afresh, whatever lies there.
    """

    store: TableStore
    ignore: bool = False
    _snapshot: Snapshot | None = None
    _opened: bool = False
    _known: dict[bytes, dict[int, int]] = field(default_factory=dict)

    def next_sequence(self, partition: bytes, bucket: int) -> int:
        """The first free sequence number of a bucket: its largest one + 1, or 0.

        Raises :class:`WriterStale` when the partition was written with another number of buckets.
        """
        if self.ignore:
            return 0
        if not self._opened:
            self._snapshot, self._opened = snapshots.latest(self.store), True
        if self._snapshot is None:
            return 0
        if partition not in self._known:
            self._known[partition] = self._read(partition, self._snapshot)
        return self._known[partition].get(bucket, -1) + 1

    def _read(self, partition: bytes, snapshot: Snapshot) -> dict[int, int]:
        entries = live_entries(self.store, snapshot, partitions=[partition], columns=list(_COLUMNS))
        self._check_total(entries)
        newest = entries.group_by("bucket").aggregate([("max_sequence_number", "max")])
        buckets = newest.column("bucket").to_numpy()
        numbers = newest.column("max_sequence_number_max").to_numpy()
        return {int(bucket): int(number) for bucket, number in zip(buckets, numbers, strict=True)}

    def _check_total(self, entries: pa.Table) -> None:
        configured = self.store.options.bucket
        others = entries.filter(pc.not_equal(entries.column("total_buckets"), configured))
        if configured > 0 and others.num_rows:
            recorded = others.column("total_buckets")[0].as_py()
            raise WriterStale(
                f"table {self.store.name}: this partition was written with {recorded} buckets, the table now has "
                f"{configured}; overwrite the partition to change its buckets"
            )
