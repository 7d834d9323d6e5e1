"""How far Iceberg readers lag behind a table: rows that they do not see, since when, and what ends it.

Two causes add up. Rows of files that need a merge are invisible until a full compaction, and commits without Iceberg
metadata are invisible until a commit writes it. The lag is the age of the oldest commit with invisible rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.clock import utc_text
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.freshness import NEEDS_WRITING, IcebergCondition, IcebergView, read_view
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.observe import BucketHealth
from lsm_core.metadata.store import TableStore

_WRONG: Final = frozenset(
    {
        IcebergCondition.REPLACED,
        IcebergCondition.MOVED,
        IcebergCondition.UNREADABLE,
        IcebergCondition.UNLISTED,
        IcebergCondition.LEFT_OVER,
    }
)


@dataclass(frozen=True)
class IcebergLag:
    """Lag of a table's Iceberg readers.

    Attributes:
        table: name of the table.
        view: what the readers see.
        since_ms: commit time from which on rows may be invisible to them (epoch ms), None if they see all rows.
        rows: stored rows of files that need a full compaction to become visible.
        bytes: bytes of these files.
        buckets: number of buckets with such files.
    """

    table: str
    view: IcebergView
    since_ms: int | None = None
    rows: int = 0
    bytes: int = 0
    buckets: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether readers see rows that the table no longer has, or fail because of the metadata."""
        return self.view.condition in _WRONG

    @property
    def needs_writing(self) -> bool:
        """Whether writing the metadata of the newest snapshot shows more rows."""
        return self.view.condition in NEEDS_WRITING

    def lag_ms(self, now_ms: int) -> int:
        """Return the age of the oldest commit with invisible rows (ms), 0 if readers see all rows.

        Args:
            now_ms: time of the observation (epoch ms).
        """
        return 0 if self.since_ms is None else max(0, now_ms - self.since_ms)

    @property
    def text(self) -> str:
        """What Iceberg readers do not see and what ends it, in one sentence for people."""
        if self.is_wrong:
            return self._with_remedy(self.view.text)
        if self.since_ms is None:
            return "Iceberg readers see all rows"
        text = f"rows committed since {utc_text(self.since_ms)} UTC are not visible to Iceberg readers"
        if self.rows:
            text += f" ({self.rows:,} stored rows, {size_text(self.bytes)}, before a full compaction)"
        return self._with_remedy(f"{text}; {self.view.text}") if self.needs_writing else text

    def _with_remedy(self, text: str) -> str:
        if not self.needs_writing:
            return text
        return f"{text}; the next commit writes it, or `dredge refresh-iceberg {shlex.quote(self.table)}`"


def read_iceberg_lag(
    store: TableStore,
    buckets: Sequence[BucketHealth],
    newest: Snapshot | None = None,
    *,
    checks_manifests: bool = False,
) -> IcebergLag | None:
    """Return the lag of a table's Iceberg readers.

    Args:
        store: the table.
        buckets: health of its buckets (`observe.health`).
        newest: newest snapshot, if the caller has just read it; None to read it.
        checks_manifests: whether metadata that names damaged manifests is damaged, at the cost of two more requests.

    Returns:
        The lag; None if the table publishes no Iceberg metadata and none is left over.

    Raises:
        CorruptFile: a snapshot cannot be read.
        InvalidOption: an option has an unknown value.
    """
    view = _read_view_of_files(store, newest) if checks_manifests else read_view(store, newest)
    return None if view is None else lag_of(store.name, view, buckets)


def _read_view_of_files(store: TableStore, newest: Snapshot | None) -> IcebergView | None:
    from lsm_core.iceberg.manifest_damage import read_view_of_files  # `dredge status` needs no decoder of manifests

    return read_view_of_files(store, newest)


def lag_of(table: str, view: IcebergView, buckets: Sequence[BucketHealth]) -> IcebergLag:
    """Return the lag that follows from the metadata and the buckets of a table.

    Args:
        table: name of the table.
        view: what Iceberg readers see.
        buckets: health of the table's buckets.
    """
    waiting = [bucket for bucket in buckets if bucket.iceberg_since_ms is not None]
    times = [bucket.iceberg_since_ms for bucket in waiting if bucket.iceberg_since_ms is not None]
    if view.since_ms is not None:
        times.append(view.since_ms)
    return IcebergLag(
        table,
        view,
        min(times, default=None),
        sum(bucket.iceberg_rows for bucket in waiting),
        sum(bucket.iceberg_bytes for bucket in waiting),
        len(waiting),
    )
