"""A table's partitions and buckets as Dagster sees them: keys are Paimon's partition paths, health is plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import dagster as dg
import pyarrow.compute as pc

from lsm_core.errors import SnapshotNotFound
from lsm_core.format.partition_path import partition_text, partition_values
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import BucketHealth, health
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.model import BucketLook, Look, TableCard

_FORBIDDEN: Final = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")


def look_at(store: TableStore) -> Look:
    """Look at the newest snapshot's metadata; no data file is opened."""
    latest = snapshots.latest(store)
    if latest is None:
        return Look(store.name, None, None)
    now = store.clock.now_ms()
    return Look(
        store.name,
        latest.id,
        data_version(store, latest.id),
        tuple(_bucket(item, now) for item in health(store, now_ms=now, snapshot_id=latest.id)),
    )


def data_version(store: TableStore, latest: int) -> int | None:
    """Return the newest snapshot that changed what the table says (APPEND or OVERWRITE), as far as snapshots reach back."""
    earliest = snapshots.earliest_id(store)
    for number in range(latest, min(earliest or latest, latest) - 1, -1):
        try:
            if snapshots.read(store, number).commit_kind in {CommitKind.APPEND, CommitKind.OVERWRITE}:
                return number
        except SnapshotNotFound:
            break
    return earliest


def partitions_definition(card: TableCard) -> dg.DynamicPartitionsDefinition | None:
    """Return the table's dynamic partitions, None when it has no partition keys."""
    return dg.DynamicPartitionsDefinition(name=names.partitions_name(card.name)) if card.partitioned else None


def usable_keys(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split partition paths into those that Dagster can hold as keys and those that it cannot."""
    usable: list[str] = []
    refused: list[str] = []
    for key in keys:
        (refused if not key or any(part in key for part in _FORBIDDEN) else usable).append(key)
    return usable, refused


def partition_values_of(store: TableStore, partition: str) -> dict[str, Any] | None:
    """Return the typed values behind a partition path of the newest snapshot, None when no live file lies there."""
    latest = snapshots.latest(store)
    if latest is None:
        return None
    entries = manifests.live_entries(store, latest, columns=["partition"])
    for value in pc.unique(entries.column("partition")).to_pylist():  # one object a partition, not a row of data
        if partition_text(store.schema, value, store.options) == partition:
            return partition_values(store.schema, value)
    return None


def missing_keys(look: Look, known: Sequence[str]) -> list[str]:
    """Return the partitions of the table that Dagster does not know yet."""
    usable, _ = usable_keys(sorted({bucket.partition for bucket in look.buckets}))
    held = set(known)
    return [key for key in usable if key not in held]


def _bucket(health_of: BucketHealth, now_ms: int) -> BucketLook:
    oldest = health_of.oldest_level0_ms
    return BucketLook(
        partition=health_of.partition_text,
        bucket=health_of.bucket,
        sorted_runs=health_of.sorted_runs,
        level0_files=health_of.level0_files,
        files=health_of.files,
        small_files=health_of.small_files,
        rows=health_of.rows,
        deletes=health_of.deletes,
        level_bytes=tuple(sorted(health_of.bytes_per_level.items())),
        read_amplification=health_of.read_amplification,
        space_amplification=health_of.space_amplification,
        newest_ms=health_of.newest_file_ms or 0,
        cost_minor=health_of.cost_minor,
        cost_full=health_of.cost_full,
        overlap_max=health_of.overlap_max,
        overlap_mean=health_of.overlap_mean,
        level0_age_ms=0 if oldest is None else max(0, now_ms - oldest),
        ro_lag_ms=health_of.ro_lag_ms,
        compacted_ms=health_of.last_compaction_ms,
        score=health_of.score,
        amplification=_number(health_of.facts.get("amplification_percent")),
        amplification_limit=_number(health_of.facts.get("max_amplification_percent")),
    )


def _number(fact: float | None) -> int | None:
    return None if fact is None else int(fact)
