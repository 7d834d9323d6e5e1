"""The platform's plain values: what is known of a table, what one look at its metadata saw, and numbers said for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class ColumnCard:
    """One column as people read it: name, SQL type (with NOT NULL) and description."""

    name: str
    type: str
    nullable: bool
    description: str


@dataclass(frozen=True)
class TableCard:
    """What definitions know of a table when they load.

    ``refusal`` says why maintenance leaves the table alone (None: it is looked after); ``unreadable`` marks a table that
    could not even be opened, for the same text.
    """

    name: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    columns: tuple[ColumnCard, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    root: str = ""
    refusal: str | None = None
    unreadable: bool = False

    @property
    def partitioned(self) -> bool:
        """Whether Dagster shows partitions."""
        return bool(self.partition_keys)

    @property
    def append_only(self) -> bool:
        """Whether the table has no primary key."""
        return not self.primary_keys


@dataclass(frozen=True)
class PartitionState:
    """What metadata says about one partition: its worst bucket where that matters, sums elsewhere.

    ``sorted_runs`` and ``level0_files`` are those of the worst bucket; ``files``, ``size`` (bytes), ``rows`` (unmerged)
    and ``deletes`` sum over buckets; ``newest_ms`` is when its newest file was written (epoch ms); ``cost_minor``
    is how many bytes the table's own rules would compact right now (0: none). ``amplification`` and
    ``amplification_limit`` are percent of the oldest run's bytes that newer runs hold in the worst bucket, and how much
    the table's rules allow (None: there is nothing to compare).
    """

    text: str
    buckets: int
    sorted_runs: int
    level0_files: int
    files: int
    small_files: int
    size: int
    rows: int
    deletes: int
    newest_ms: int
    cost_minor: int = 0
    amplification: int | None = None
    amplification_limit: int | None = None


@dataclass(frozen=True)
class BucketLook:
    """One bucket's shape. Sizes and costs in bytes, ``rows`` unmerged, ``level_bytes`` as (level, bytes), times epoch ms.

    ``cost_minor`` is how many bytes the table's own rules would compact right now (0: none), ``cost_full`` those of a
    full compaction. ``overlap_max`` and ``overlap_mean``: sorted runs over any key, at worst and by rows.
    ``level0_age_ms`` and ``ro_lag_ms`` (ms): ages of the oldest level-0 file and of the oldest data that the
    read-optimised view does not show, when it was looked at. ``amplification`` as in :class:`PartitionState`.
    """

    partition: str
    bucket: int
    sorted_runs: int
    level0_files: int
    files: int
    small_files: int
    rows: int
    deletes: int
    level_bytes: tuple[tuple[int, int], ...]
    read_amplification: float
    space_amplification: float
    newest_ms: int
    cost_minor: int = 0
    cost_full: int = 0
    overlap_max: int = 1
    overlap_mean: float = 1.0
    level0_age_ms: int = 0
    ro_lag_ms: int = 0
    compacted_ms: int | None = None
    score: float = 0.0
    amplification: int | None = None
    amplification_limit: int | None = None

    @property
    def shape(self) -> tuple[object, ...]:
        """What only a commit changes: time does not."""
        return self.level_bytes, self.files, self.level0_files, self.rows

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.level_bytes)


@dataclass(frozen=True)
class Look:
    """What one look at a table's metadata saw: the snapshot (None: no commit yet) and every bucket, or one partition's."""

    table: str
    snapshot: int | None
    data_version: int | None
    buckets: tuple[BucketLook, ...] = field(default_factory=tuple)

    def of_partition(self, partition: str | None) -> Look:
        """Return the look cut down to one partition (``None``: all of it)."""
        if partition is None:
            return self
        kept = tuple(bucket for bucket in self.buckets if bucket.partition == partition)
        return Look(self.table, self.snapshot, self.data_version, kept)

    def partitions(self) -> list[PartitionState]:
        """Return one state a partition, sorted by key."""
        groups: dict[str, list[BucketLook]] = {}
        for bucket in self.buckets:
            groups.setdefault(bucket.partition, []).append(bucket)
        return [_state(text, group) for text, group in sorted(groups.items())]

    def to_json(self) -> str:
        """Return the look as one line of JSON: what ops hand to each other."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Look:
        """Read back what :meth:`to_json` wrote."""
        value = json.loads(text)
        buckets = tuple(
            BucketLook(**{**bucket, "level_bytes": tuple((level, size) for level, size in bucket["level_bytes"])})
            for bucket in value.pop("buckets")
        )
        return Look(**value, buckets=buckets)


def size_text(size: int) -> str:
    """Bytes for people: ``52 KiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 10 or unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def count_text(number: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 run``, ``4 runs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _state(text: str, group: Sequence[BucketLook]) -> PartitionState:
    worst = max(group, key=lambda bucket: (bucket.sorted_runs, bucket.amplification or 0))
    return PartitionState(
        text=text,
        buckets=len(group),
        sorted_runs=max(bucket.sorted_runs for bucket in group),
        level0_files=max(bucket.level0_files for bucket in group),
        files=sum(bucket.files for bucket in group),
        small_files=sum(bucket.small_files for bucket in group),
        size=sum(bucket.size for bucket in group),
        rows=sum(bucket.rows for bucket in group),
        deletes=sum(bucket.deletes for bucket in group),
        newest_ms=max(bucket.newest_ms for bucket in group),
        cost_minor=sum(bucket.cost_minor for bucket in group),
        amplification=worst.amplification,
        amplification_limit=worst.amplification_limit,
    )
