"""Plan of a compaction: every requested bucket becomes an item, or is declined with a reason and figures.

Plans, scheduling decisions and simulations use the same prediction of the time, calibrated by the table's former runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.clock import written_span
from lsm_core.commit.overwrite import moves_hidden_keys
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.partitions import partition_bytes, partition_names, partition_text
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import Declined, MaintenancePlan, PlanEstimate, bucket_name, record_plan
from lsm_core.maintenance.actions.assign_buckets import AssignItem, estimate_seconds, waiting_items
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.actions.compact.incremental_clustering import find_history_groups, plan_clustering
from lsm_core.maintenance.actions.compact.recluster import ReclusterItem, recluster_items
from lsm_core.maintenance.actions.compact.sort_order import SortOrder, clustering_order, require_order, sort_item
from lsm_core.maintenance.actions.compact.unit_choice import FullCompactionsByCommits, Place, plan_bins, plan_tree
from lsm_core.maintenance.ledger import DONE, LedgerEntry, iterate_ledger
from lsm_core.metadata import manifests, paimon_version, snapshots
from lsm_core.metadata.indexes import deleted_rows, vector_files
from lsm_core.metadata.live_files import BucketGroup, bucket_groups, iter_tree_files
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import require_allowed_places, require_compactable
from lsm_core.options import PaimonVersion, duration, whole_number
from lsm_core.read.partition_choice import chosen_partitions, idle_partitions
from lsm_core.read.prune import expiry_of

# File bytes that one core decodes, merges and encodes per second (kernels.md, zstd level 1).
_BYTES_PER_SECOND: Final = 25_000_000
_SECONDS_PER_TASK: Final = 0.1
_RUNS: Final = 20
"""Number of newest ledger entries that calibrate the forecast; few, as hardware, runners and data change."""
_COMPACT: Final = "compact"


def compaction_seconds(size: int, tasks: int) -> float:
    """Return the predicted time of a compaction on one core in seconds, without calibration.

    Args:
        size: bytes of the files to read.
        tasks: number of buckets to compact.
    """
    return size / _BYTES_PER_SECOND + _SECONDS_PER_TASK * tasks


@dataclass(frozen=True)
class Calibration:
    """Correction factors for predictions, from a table's former compactions.

    Attributes:
        runs: number of compared runs; if 0, predictions are not corrected.
        seconds: median of measured seconds divided by predicted seconds.
        bytes_out: median of the size of a run's files afterwards divided by their size before; plans assume 1. Files
            that the run kept count in both, because plans count them too.
    """

    runs: int = 0
    seconds: float = 1.0
    bytes_out: float = 1.0

    def predicted_seconds(self, forecast: float) -> float:
        """Return the corrected seconds for a plan whose uncorrected prediction is ``forecast`` seconds."""
        return forecast * self.seconds

    def text(self) -> str:
        """Return the calibration as one sentence for people."""
        if not self.runs:
            return "the ledger has no run to calibrate with: the forecast for one core is used unchanged"
        noun = "run" if self.runs == 1 else "runs"
        return (
            f"{self.runs} {noun} took {self.seconds:.2f} times the forecast for one core, "
            f"and left {self.bytes_out:.0%} of the bytes"
        )


def calibrate(entries: Iterable[LedgerEntry]) -> Calibration:
    """Compute the correction of predictions from recorded maintenance runs.

    Only successful compactions are used that rewrote files and recorded both predicted and measured seconds.

    Args:
        entries: ledger entries; entries of actions other than compaction are skipped.
    """
    seconds: list[float] = []
    sizes: list[float] = []
    for entry in entries:
        read, written = entry.report.get("bytes_in"), entry.report.get("bytes_out")
        if entry.action != _COMPACT or entry.outcome != DONE or not _is_amount(read) or not read:
            continue  # upgrades alone take too little time to compare
        if entry.predicted_seconds and entry.seconds is not None:
            seconds.append(entry.seconds / entry.predicted_seconds)
            size = entry.report.get("bytes_kept")
            kept = size if _is_amount(size) else 0
            sizes.append((written + kept) / (read + kept) if _is_amount(written) else 1.0)
    return Calibration(len(seconds), median(seconds), median(sizes)) if seconds else Calibration()


def _is_amount(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def calibration_of(store: TableStore, but_for: str = "") -> Calibration:
    """Return the correction of predictions from the newest 20 runs in the table's ledger; unreadable runs are skipped.

    Args:
        store: the table.
        but_for: hash of a plan whose runs are left out, so that the plan's prediction can be compared with these runs;
            "" to use all runs.
    """
    entries = iterate_ledger(store, _RUNS, heads=True)
    try:
        return calibrate(entry for entry in entries if not but_for or entry.plan_hash != but_for)
    except (DredgeError, OSError):  # without a ledger the forecast is used unchanged
        return Calibration()


_DECIDING_COLUMNS: Final = frozenset(
    {
        *("kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count", "min_key", "max_key"),
        *("min_sequence_number", "max_sequence_number", "schema_id", "level", "creation_time_ms", "delete_row_count"),
        *("external_path", "first_row_id"),
    }
)
_PLACE_COLUMNS: Final = ("partition", "bucket", "total_buckets")


@record_plan("compact")
def plan_compaction(
    store: TableStore,
    full: bool = False,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    buckets: Sequence[int] | None = None,
    now_ms: int | None = None,
    order_by: Sequence[str] | None = None,
    strategy: str | None = None,
    commit_every: int | None = None,
    where: str | None = None,
    partition_idle_time: int | str | None = None,
    compact_strategy: str | None = None,
) -> MaintenancePlan:
    """Plan the compaction of every chosen bucket that needs one.

    Chosen buckets that need no compaction are in ``declined`` of the plan, with figures. In a table with `bucket` = -2
    the plan also assigns postponed rows to buckets, unless ``buckets`` is given. If keys may move between partitions
    and readers skip level 0, buckets with level-0 deletes are always chosen too. With incremental clustering, idle
    partitions are chosen too if `clustering.history-partition.idle-to-full-sort` is set. Only metadata is read.

    Args:
        store: the table.
        full: compact everything to the last level.
        partitions: partitions to compact (typed values, None = null), None for all.
        buckets: numbers of the buckets to compact, None for all.
        now_ms: time of planning (epoch ms), None for the table's clock.
        order_by: columns of a sort compaction, which rewrites all files of each partition.
        strategy: strategy of the sort ("order", "zorder", "hilbert", "auto"). With a strategy and no ``order_by``, the
            sort columns are those of option `clustering.columns`.
        commit_every: number of buckets per commit, None for one commit of all buckets. Each commit succeeds or fails
            independently.
        where: condition on partition columns in place of ``partitions`` ("dt >= '2024-01-01' AND h IN (1, 2)").
        partition_idle_time: choose partitions without new data for this long (ms, or "7d").
        compact_strategy: "full" or "minor", in place of ``full``.

    Raises:
        UnsupportedFeature: the table cannot be compacted or sorted here.
        CorruptFile: metadata cannot be read.
        InvalidFilter: a partition does not fit the schema, or ``where`` names a column that is no partition column.
        ColumnNotFound: a column does not exist.
        InvalidOption: an argument is invalid, or ``buckets`` has a number that no partition can have.
    """
    order = require_order(store, order_by, strategy, buckets) if order_by is not None or strategy is not None else None
    full = _is_full(store, compact_strategy, full=full)
    idle = None if partition_idle_time is None else _idle_ms(store, partition_idle_time)
    snapshot = snapshots.latest(store)
    require_compactable(store, snapshot)
    now = store.clock.now_ms() if now_ms is None else now_ms
    if where is not None:
        partitions = chosen_partitions(store, {"where": where, "partitions": partitions})
    bucket_numbers = None if buckets is None else sorted(whole_number(b, "buckets", store.name) for b in buckets)
    chosen = None if partitions is None else [partition_bytes(store.schema, p, store.name) for p in partitions]
    if idle is not None and snapshot is not None:
        named_partitions, chosen = chosen, idle_partitions(store, snapshot, idle, now)
        chosen = (
            chosen
            if named_partitions is None
            else [partition for partition in chosen if partition in set(named_partitions)]
        )
    paimon_version_text = paimon_version.describe_version(store.options, store.version_found)
    arguments = {
        "full": full,
        "partitions": None if chosen is None else " ".join(sorted(p.hex() for p in chosen)),
        "buckets": None if bucket_numbers is None else " ".join(map(str, bucket_numbers)),
        **(order.arguments() if order is not None else {}),
        **(
            {"commit_every": whole_number(commit_every, "commit_every", store.name, 1)}
            if commit_every is not None
            else {}
        ),
        # version 1.4 is the default and is left out
        **({"paimon_version": paimon_version_text} if store.options.paimon_version is not PaimonVersion.V1_4 else {}),
    }
    plan = MaintenancePlan.begin("compact", store, None, arguments, now)
    if snapshot is None:
        _missing_places(store, (), None, bucket_numbers, ENTRY_SCHEMA.empty_table)
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    if idle is not None and not chosen:
        text = f"no partition that was chosen has been without new data for {written_span(idle)}"
        return replace(plan, base_snapshot=snapshot.id, declined=(Declined("table", "not idle", text),))
    columns = _plan_columns(store, sorts=order is not None)
    entries = manifests.live_entries(store, snapshot, partitions=chosen, buckets=bucket_numbers, columns=columns)
    left_parts = _entries_of_left_keys(store, snapshot, entries, commit_every) if moves_hidden_keys(store) else []
    entries = pa.concat_tables([entries, *left_parts])
    waiting = waiting_items(store, entries) if store.bucket_mode is BucketMode.POSTPONE else []
    require_allowed_places(store, entries)
    # postponed rows are in no bucket yet
    placed = [_placed(entries)]
    del entries
    groups = bucket_groups(placed.pop())  # with its only reference
    living, leaving = _split_expired(store, groups, now)
    sorts = [] if order is None else _reclusters(store, living, order, commit_every)
    outcomes: list[CompactItem | Declined] = [*leaving]
    outcomes += [outcome for outcome in sorts if isinstance(outcome, Declined)]
    if not sorts:
        outcomes += _units(
            store, snapshot, living, full, now, (None, None) if left_parts else (chosen, bucket_numbers), order
        )
        outcomes += _history_units(store, snapshot, chosen, now)
    filled = {(partition, bucket) for partition, bucket, _, _ in groups}
    filled |= {(item.partition, POSTPONE_BUCKET) for item in waiting}
    listing = partial(manifests.live_entries, store, snapshot, partitions=chosen, columns=_PLACE_COLUMNS)
    outcomes += _missing_places(store, filled, chosen, bucket_numbers, listing)
    items = sorted((o for o in outcomes if isinstance(o, CompactItem)), key=lambda i: (i.partition_text, i.bucket))
    declined = sorted((o for o in outcomes if isinstance(o, Declined)), key=lambda d: (d.partition_text, d.bucket or 0))
    work: list[AssignItem | CompactItem | ReclusterItem] = [
        *waiting,
        *(outcome for outcome in sorts if isinstance(outcome, ReclusterItem)),
        *items,
    ]
    size = sum(item.bytes_in for item in work)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in work),
        files_in=sum(len(item.inputs) for item in work),
        tasks=len(work),
        seconds=round(
            compaction_seconds(sum(item.bytes_in for item in items), len(items))
            + (estimate_seconds(waiting) if waiting else 0.0),
            2,
        ),
    )
    return replace(plan, base_snapshot=snapshot.id, items=tuple(work), declined=tuple(declined), estimate=estimate)


def _entries_of_left_keys(
    store: TableStore, snapshot: Snapshot, entries: pa.Table, commit_every: int | None
) -> list[pa.Table]:
    """Return the live entries of each bucket that must be compacted too, as keys may have left it for other partitions.

    Args:
        store: the table.
        snapshot: snapshot that is planned.
        entries: entries of the buckets that are planned anyway; the result has their columns.
        commit_every: number of buckets per commit, None for one commit.

    Raises:
        InvalidOption: there is such a bucket and ``commit_every`` is set.
    """
    places = _find_places_of_left_keys(store, snapshot)
    if places and commit_every is not None:
        accepted = "None: keys that moved between partitions are hidden and shown by one commit"
        raise InvalidOption("commit_every", commit_every, accepted, store.name)
    extra = places - {(partition, bucket) for partition, bucket, _, _ in bucket_groups(entries)}
    if not extra:
        return []
    partitions = sorted({partition for partition, _ in extra})
    more = manifests.live_entries(store, snapshot, partitions=partitions, columns=entries.column_names)
    return [part for partition, bucket, _, part in bucket_groups(more) if (partition, bucket) in extra]


def _placed(entries: pa.Table) -> pa.Table:
    """Return the entries of files that have a bucket; postponed rows have none yet."""
    has_bucket = pc.greater_equal(entries.column("bucket"), arrow_scalar(0, pa.int32()))
    return entries if pc.all(has_bucket, min_count=0).as_py() else entries.filter(has_bucket)


def _plan_columns(store: TableStore, *, sorts: bool) -> list[str] | None:
    """Return the columns of manifest entries that decide a compaction, None for all.

    Statistics are most of an entry's bytes. They decide only in tables whose rows expire.

    Args:
        store: the table.
        sorts: whether the compaction sorts.
    """
    if sorts or store.bucket_mode is BucketMode.POSTPONE or expiry_of(store) is not None:
        return None
    return [name for name in ENTRY_SCHEMA.names if name in _DECIDING_COLUMNS]


def _reclusters(
    store: TableStore, groups: Sequence[BucketGroup], order: SortOrder, commit_every: int | None
) -> list[ReclusterItem | Declined]:
    """Return the items of a sort compaction of a primary-key table with dynamic buckets, one per partition.

    For tables without a primary key the list is empty, because there a sort is planned as :class:`CompactItem`.
    Raises InvalidOption if ``commit_every`` is set.
    """
    if not store.has_primary_key:
        return []
    if commit_every is not None:
        accepted = "None: a sort of dynamic buckets is one commit"
        raise InvalidOption("commit_every", commit_every, accepted, store.name)
    return recluster_items(store, groups, order)


def _idle_ms(store: TableStore, text: int | str) -> int:
    """Convert the argument `partition_idle_time` (ms, or text such as "7d") to ms. Raises InvalidOption."""
    try:
        return duration(text, "partition_idle_time")
    except InvalidOption as error:
        raise InvalidOption(error.key, error.value, error.accepted, store.name) from error


def _is_full(store: TableStore, compact_strategy: str | None, *, full: bool) -> bool:
    """Return whether a full compaction is requested, by ``full`` or ``compact_strategy``.

    Raises InvalidOption if ``compact_strategy`` is unknown or contradicts ``full``.
    """
    if compact_strategy is None:
        return full
    strategy = compact_strategy.strip().lower() if isinstance(compact_strategy, str) else compact_strategy
    if strategy not in ("full", "minor"):
        raise InvalidOption("compact_strategy", compact_strategy, "full, minor", store.name)
    if full and strategy == "minor":
        raise InvalidOption("compact_strategy", compact_strategy, "full, or nothing, beside the flag full", store.name)
    return bool(strategy == "full")


def _find_places_of_left_keys(store: TableStore, snapshot: Snapshot) -> frozenset[tuple[bytes, int]]:
    """Return the buckets with delete records in level 0, as (partition, bucket number).

    Such a record can delete a key whose row moved to another partition. Readers that skip level 0 would see the key in
    both partitions if only the bucket of the new partition were compacted.
    """
    columns = ["partition", "bucket", "level", "delete_row_count"]
    fresh = manifests.live_entries(store, snapshot, levels=[0], columns=columns)
    leaving = fresh.filter(pc.greater(pc.fill_null(fresh.column("delete_row_count"), 1), 0))
    places = leaving.group_by(["partition", "bucket"]).aggregate([])  # one row per bucket, not per file
    return frozenset(zip(*(places.column(name).to_pylist() for name in ("partition", "bucket")), strict=True))


def plan_units(store: TableStore, plan: MaintenancePlan) -> MaintenancePlan:
    """Choose the buckets of a plan again, after the plan's postponed rows were assigned to buckets.

    The arguments and the time of ``plan`` are used again. Only metadata is read.

    Args:
        store: the table.
        plan: plan made before the assignment.

    Raises:
        CorruptFile: metadata cannot be read.
    """
    partitions, snapshot = plan.arguments["partitions"], snapshots.latest(store)
    if snapshot is None:
        return plan
    chosen = None if partitions is None else [bytes.fromhex(text) for text in str(partitions).split()]
    columns = _plan_columns(store, sorts=False)
    groups = bucket_groups(_placed(manifests.live_entries(store, snapshot, partitions=chosen, columns=columns)))
    living, _ = _split_expired(store, groups, plan.created_ms)
    outcomes = _units(store, snapshot, living, bool(plan.arguments["full"]), plan.created_ms, (chosen, None), None)
    items = tuple(outcome for outcome in outcomes if isinstance(outcome, CompactItem))
    declined = tuple(outcome for outcome in outcomes if isinstance(outcome, Declined))
    return replace(plan, base_snapshot=snapshot.id, items=items, declined=declined)


def _split_expired(
    store: TableStore, groups: Sequence[BucketGroup], now_ms: int
) -> tuple[Sequence[BucketGroup], list[Declined]]:
    """Split buckets into those to plan and those of partitions about to expire (`compaction.skip-expired-partitions`).

    Returns:
        The buckets to plan, and a declined entry for each bucket of an expiring partition.
    """
    if not store.options.get("compaction.skip-expired-partitions"):
        return groups, []
    from lsm_core.maintenance.actions.expire_partitions import find_expired_partitions

    newest: dict[bytes, int] = {}
    for partition, _, _, entries in groups:
        newest[partition] = max(newest.get(partition, 0), pc.max(entries.column("creation_time_ms")).as_py() or 0)
    expired = find_expired_partitions(store, newest, now_ms)
    leaving = []
    for partition, bucket, _, _ in groups:
        if partition in expired:
            text = partition_text(store.schema, partition, store.options)
            why = f"its partition, of {expired[partition]} UTC, is dropped by the next expiry of partitions"
            leaving.append(Declined(bucket_name(text, bucket), "expired", why, {}, text, bucket))
    return [group for group in groups if group[0] not in expired], leaving


def _units(
    store: TableStore,
    snapshot: Snapshot,
    groups: Sequence[BucketGroup],
    full: bool,
    now: int,
    chosen: tuple[Sequence[bytes] | None, Sequence[int] | None],
    order: SortOrder | None,
) -> list[CompactItem | Declined]:
    """Return the item, or the declined entry, of each bucket of ``groups``.

    Args:
        store: the table.
        snapshot: snapshot that the entries of ``groups`` belong to.
        groups: buckets with their live manifest entries.
        full: whether a full compaction is requested.
        now: time of planning (epoch ms).
        chosen: requested partitions (as bytes) and requested bucket numbers, each None for all.
        order: sort order, only used for tables without a primary key; None plans a compaction without sorting.
    """
    outcomes: list[CompactItem | Declined] = []
    if not groups:
        return []
    vectors = vector_files(store, snapshot, *chosen)
    cluster_order = clustering_order(store) if store.options.clusters_incrementally else None
    by_commits = FullCompactionsByCommits(store, snapshot)
    partitions = list(dict.fromkeys(group[0] for group in groups))
    texts = dict(zip(partitions, partition_names(store.schema, partitions, store.options), strict=True))
    trees = iter_tree_files(store, [group[3] for group in groups])
    for (partition, bucket, total_buckets, entries), files in zip(groups, trees, strict=True):
        place = Place(partition, texts[partition], bucket, total_buckets)
        marked = deleted_rows(vectors.get((partition, bucket), ()))
        if store.schema.primary_keys:
            due = by_commits.is_due(partition, bucket)
            outcomes.append(plan_tree(store, place, entries, full, now, marked, full_is_due=due, files=files))
            continue
        if cluster_order is not None:
            outcomes.append(plan_clustering(store, place, files, full, cluster_order, marked))
        elif order is None:
            outcomes.append(plan_bins(store, place, files, full, marked))
        else:
            outcomes.append(sort_item(partition, place.text, bucket, total_buckets, files, order))
    return outcomes


def _history_units(
    store: TableStore, snapshot: Snapshot, chosen: Sequence[bytes] | None, now: int
) -> list[CompactItem | Declined]:
    """Plan the idle partitions that incremental clustering sorts in addition to the ``chosen`` partitions.

    Returns the item, or the declined entry, of each bucket of these partitions.
    """
    if not store.options.clusters_incrementally:
        return []
    groups, _ = _split_expired(store, find_history_groups(store, snapshot, chosen, now), now)
    return _units(store, snapshot, groups, full=True, now=now, chosen=(None, None), order=None)


def _missing_places(
    store: TableStore,
    filled: Collection[tuple[bytes, int]],
    partitions: Sequence[bytes] | None,
    buckets: Sequence[int] | None,
    listing: Callable[[], pa.Table],
) -> list[Declined]:
    """Return a declined entry for every requested partition or bucket that contains no file.

    ``filled`` are the partition and number of the buckets with files. ``listing`` returns the live entries of the
    requested partitions in all buckets. ``listing`` is called only if ``buckets`` are requested and a partition or
    bucket has no file. Raises InvalidOption for a bucket number that no partition can have.
    """
    for name, named in (("partitions", partitions), ("buckets", buckets)):
        if named is not None and not named:
            return [Declined("table", "empty", f"the list of {name} is empty: nothing is chosen")]
    absent = sorted(set(buckets or ()) - {bucket for _, bucket in filled})
    here = {partition for partition, _ in filled}
    unseen = [partition for partition in dict.fromkeys(partitions or ()) if partition not in here]
    if buckets is not None and (unseen or absent):
        table = listing()
        _require_buckets(store, absent, table)
        here = set(pc.unique(table.column("partition")).to_pylist())
        unseen = [partition for partition in unseen if partition not in here]
    texts = [partition_text(store.schema, partition, store.options) for partition in unseen]
    declined = [Declined(text or "table", "empty", "no file lies there", {}, text) for text in texts]
    alone = [Declined(bucket_name("", bucket), "empty", "no file lies there", {}, "", bucket) for bucket in absent]
    return declined if declined and not here else [*declined, *alone]


def _require_buckets(store: TableStore, absent: Sequence[int], entries: pa.Table) -> None:
    """Raise InvalidOption if a number in ``absent`` exceeds the bucket numbers of option `bucket` and of ``entries``.

    ``absent`` are requested buckets without files; ``entries`` are live manifest entries.
    """
    if store.options.bucket > 0:
        count = max(store.options.bucket, pc.max(entries.column("total_buckets")).as_py() or 0)
    else:
        newest = pc.max(entries.column("bucket")).as_py()
        count = 0 if newest is None else max(newest + 1, 0)
    wrong = [bucket for bucket in absent if bucket < 0 or (count and bucket >= count)]
    if wrong:
        accepted = (
            f"0 to {count - 1}: there {'is 1 bucket' if count == 1 else f'are {count} buckets'}"
            if count
            else "0 or more"
        )
        raise InvalidOption("buckets", wrong[0] if len(wrong) == 1 else wrong, accepted, store.name)
