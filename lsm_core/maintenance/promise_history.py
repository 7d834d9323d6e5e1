"""Share of time in which a table kept a limit of sorted runs or of freshness, from the snapshots that still exist.

Only snapshots, manifest lists and manifests are read. A limit is judged for each moment between two snapshots. Moments
before the oldest usable snapshot are unknown: they count neither as kept nor as broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import numpy_array
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

Ints = npt.NDArray[np.int64]
SORTED_RUNS: Final = "sorted_runs_p95"
FRESHNESS: Final = "freshness"
MOST_SNAPSHOTS: Final = 2_000
"""Largest number of snapshots that are read for one table; the time before these snapshots is unknown."""
_PERCENTILE: Final = 95
_COLUMNS: Final = ("kind", "partition", "bucket", "level")


@dataclass(frozen=True)
class TimeWithin:
    """Time in which a table kept a limit.

    Attributes:
        window_ms: length of the window, which begins no earlier than the table's first snapshot.
        known_ms: part of the window for which snapshots still exist.
        within_ms: part of the known time in which the limit was kept.
        latest: current value: sorted runs, or ms since the newest commit that readers see. None if it is unknown.
        is_within: whether the limit is kept now, None if this is unknown.
    """

    window_ms: int
    known_ms: int
    within_ms: int
    latest: int | None
    is_within: bool | None

    @property
    def share(self) -> float | None:
        """Share of the known time in which the limit was kept (0 to 1), None if nothing is known."""
        return self.within_ms / self.known_ms if self.known_ms > 0 else None

    @property
    def known_share(self) -> float:
        """Share of the window that is known (0 to 1)."""
        return self.known_ms / self.window_ms if self.window_ms > 0 else 1.0


@dataclass(frozen=True)
class RecentHistory:
    """Consecutive snapshots of a table in a time window, oldest first.

    Attributes:
        snapshots: the snapshots; the first one may be older than the window, because it holds the state at its start.
        times: commit times of the snapshots (epoch ms), ascending.
        begin_ms: start of the measured time (epoch ms).
        known_from_ms: first moment of the window whose snapshot exists (epoch ms).
        end_ms: end of the measured time (epoch ms).
    """

    snapshots: tuple[Snapshot, ...]
    times: Ints
    begin_ms: int
    known_from_ms: int
    end_ms: int


def read_recent_history(store: TableStore, since_ms: int, now_ms: int) -> RecentHistory:
    """Return the newest snapshots without a gap, back to the one that was current at the start of the window.

    Args:
        store: the table.
        since_ms: start of the measured time (epoch ms).
        now_ms: end of the measured time (epoch ms).

    Raises:
        CorruptFile: a snapshot cannot be read.
    """
    ids = snapshots.list_ids(store)
    chain: list[Snapshot] = []
    for snapshot_id in reversed(ids):
        is_next = not chain or snapshot_id == chain[-1].id - 1
        if not is_next or len(chain) == MOST_SNAPSHOTS or (chain and chain[-1].time_millis <= since_ms):
            break
        snapshot = snapshots.try_read(store, snapshot_id)
        if snapshot is None:  # expired since the listing
            break
        chain.append(snapshot)
    chain.reverse()
    times = np.array([snapshot.time_millis for snapshot in chain], np.int64)
    times = np.maximum.accumulate(times) if len(times) else times
    first = int(times[0]) if len(times) else now_ms
    begin = max(since_ms, first) if chain and chain[0].id == 1 else since_ms
    return RecentHistory(tuple(chain), times, min(begin, now_ms), min(max(begin, first), now_ms), now_ms)


def measure_sorted_runs(store: TableStore, history: RecentHistory, limit: int) -> TimeWithin | None:
    """Return the time in which 95 % of the buckets had at most `limit` sorted runs.

    At each moment, the buckets that have files count. The 95th percentile is that of the nearest rank.

    Args:
        store: the table.
        history: recent snapshots of the table.
        limit: largest number of sorted runs that keeps the limit.

    Returns:
        The time, or None for an append table, whose buckets have no sorted runs.

    Raises:
        CorruptFile: a manifest cannot be read.
    """
    if not store.has_primary_key:
        return None
    window = history.end_ms - history.begin_ms
    if not history.snapshots:
        return TimeWithin(window, 0, 0, None, None)
    first, *others = history.snapshots
    parts = [manifests.live_entries(store, first, columns=_COLUMNS).select(_COLUMNS)]
    parts += [manifests.delta_entries(store, snapshot).select(_COLUMNS) for snapshot in others]
    steps = np.repeat(np.arange(len(parts), dtype=np.int64), [part.num_rows for part in parts])
    over, live, now = _count_buckets(pa.concat_tables(parts), steps, len(parts), limit)
    is_within = over <= live - _rank(live)
    spans = _spans(history.times, history)
    latest = int(np.sort(now)[_rank(np.array([len(now)]))[0] - 1]) if len(now) else 0
    return TimeWithin(window, int(spans.sum()), int(spans[is_within].sum()), latest, bool(is_within[-1]))


def _rank(counts: Ints) -> Ints:
    """Return the rank of the 95th percentile (nearest rank, from 1) for each number of values in ``counts``."""
    return -(-counts * _PERCENTILE // 100)


def _count_buckets(entries: pa.Table, steps: Ints, count: int, limit: int) -> tuple[Ints, Ints, Ints]:
    """Return, after each step, the number of buckets above the limit and the number of buckets with files.

    Args:
        entries: manifest entries with kind, partition, bucket and level.
        steps: step of each entry: index, from the oldest, of the snapshot that changed the file.
        count: number of steps (snapshots).
        limit: largest number of sorted runs of a bucket that keeps the limit.

    Returns:
        Buckets above the limit by step, buckets with files by step, and the sorted runs of each bucket with files after
            the last step.
    """
    bucket, level = (numpy_array(entries.column(name)).astype(np.int64) for name in ("bucket", "level"))
    has_bucket = bucket >= 0  # postponed rows are in no bucket yet
    change = np.where(numpy_array(entries.column("kind")) == 0, 1, -1).astype(np.int64)
    codes = entries.column("partition").combine_chunks().dictionary_encode().indices
    partition = numpy_array(codes).astype(np.int64)
    place, level, step, change = (
        values[has_bucket] for values in (partition * (1 + bucket.max(initial=0)) + bucket, level, steps, change)
    )
    # Files per place and level after each step at which they change, then the change of runs: a file of level 0 is a
    # run, and so is each higher level with files.
    rows, change = _sum_by(np.stack([place, level, step]), change)
    files = _cumulate(rows[:2], change)
    runs = np.where(rows[1] > 0, (files > 0).astype(np.int64), files)
    runs = _differences(rows[:2], runs)
    rows, both = _sum_by(rows[[0, 2]], np.stack([runs, change], axis=1))
    runs, files = (_cumulate(rows[:1], both[:, column]) for column in (0, 1))
    over, live = (_differences(rows[:1], values.astype(np.int64)) for values in (runs > limit, files > 0))
    by_step = [np.cumsum(np.bincount(rows[1], values, count)).astype(np.int64) for values in (over, live)]
    is_last = np.append(rows[0][1:] != rows[0][:-1], True) if rows.shape[1] else np.zeros(0, bool)
    return by_step[0], by_step[1], runs[is_last & (files > 0)]


def _sum_by(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return (distinct columns of ``keys``, sorted; sum of the values of each distinct column)."""
    order = np.lexsort(keys[::-1])
    keys, values = keys[:, order], values[order]
    starts = np.flatnonzero(_begins(keys))
    return keys[:, starts], np.add.reduceat(values, starts, axis=0) if len(starts) else values


def _begins(keys: Ints) -> npt.NDArray[np.bool_]:
    """Return whether each column of sorted ``keys`` differs from the one before it."""
    count = keys.shape[1]
    return np.append(np.ones(min(count, 1), bool), (keys[:, 1:] != keys[:, :-1]).any(axis=0))


def _cumulate(keys: Ints, values: Ints) -> Ints:
    """Return running sums of ``values``, separately for each group of equal ``keys``."""
    sums = np.cumsum(values)
    starts = np.flatnonzero(_begins(keys))
    before = np.where(starts > 0, sums[starts - 1], 0)
    totals: Ints = sums - np.repeat(before, np.diff(np.append(starts, len(values))))
    return totals


def _differences(keys: Ints, values: Ints) -> Ints:
    """Return each value minus the value before it in the same group of ``keys``; the first of a group is unchanged."""
    before = np.append(np.zeros(min(len(values), 1), np.int64), values[:-1])
    before[_begins(keys)] = 0
    return values - before


def _spans(times: Ints, history: RecentHistory) -> Ints:
    """Return how long (ms) each snapshot was the newest one inside the known part of the window."""
    edges = np.clip(np.append(times, history.end_ms), history.known_from_ms, history.end_ms)
    spans: Ints = np.diff(edges)
    return spans


def measure_freshness(store: TableStore, history: RecentHistory, limit_ms: int) -> TimeWithin:
    """Return the time in which the newest commit of a writer that readers see was at most `limit_ms` old.

    Commits of maintenance do not count. In tables whose batch reads skip level 0, readers see a commit from the next
    compaction on; a compaction that began before the commit is taken to include it.

    Args:
        store: the table.
        history: recent snapshots of the table.
        limit_ms: highest age (ms).
    """
    window = history.end_ms - history.begin_ms
    if not history.snapshots:
        return TimeWithin(window, 0, 0, None, None)
    hides = store.has_primary_key and store.options.batch_scan_skips_level0
    seen, written = _visible_commits(history.snapshots, history.times, hides=hides)
    first = int(history.times[0])
    # The first segment ends with the first visible commit. In it, only this is known: the newest visible commit is no
    # younger than the first snapshot. So the limit may be kept until that snapshot is older than the limit.
    edges = np.concatenate([[first], seen, [history.end_ms]])
    expires = np.concatenate([[first], written]) + limit_ms
    low, high = history.known_from_ms, history.end_ms
    ends = np.clip(np.clip(expires, edges[:-1], edges[1:]), low, high)
    kept = ends - np.clip(edges[:-1], low, high)
    unknown = int(kept[0])
    known = max(high - low - unknown, 0)
    if not len(seen):
        return TimeWithin(window, known, 0, None, False if high - first > limit_ms else None)
    latest = high - int(written[-1])
    return TimeWithin(window, known, int(kept[1:].sum()), latest, latest <= limit_ms)


def _visible_commits(commits: Sequence[Snapshot], times: Ints, *, hides: bool) -> tuple[Ints, Ints]:
    """Return the times at which readers begin to see commits of writers.

    Commits of maintenance plans do not count as commits of writers.

    Args:
        commits: consecutive snapshots.
        times: their commit times (epoch ms), ascending.
        hides: whether readers see a commit only after the next compaction.

    Returns:
        Two arrays of times (epoch ms) of equal length. The first has the times at which readers see new rows. The
        second has, for each of them, the commit time of the newest commit that readers see from then on.
    """
    is_compaction = np.array([commit.commit_kind is CommitKind.COMPACT for commit in commits], bool)
    is_writer = np.array(
        [
            commit.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE)
            and PLAN_PROPERTY not in (commit.properties or {})
            for commit in commits
        ],
        bool,
    )
    if not hides:
        return times[is_writer], times[is_writer]
    newest = np.maximum.accumulate(np.where(is_writer, times, -1))
    is_visible = is_compaction & (newest >= 0)
    return times[is_visible], newest[is_visible]


def measure_promises(
    store: TableStore, since_ms: int, now_ms: int, *, sorted_runs: int | None = None, freshness_ms: int | None = None
) -> dict[str, TimeWithin]:
    """Return the time in which a table kept each limit, by name of the limit.

    Args:
        store: the table.
        since_ms: start of the measured time (epoch ms).
        now_ms: end of the measured time (epoch ms).
        sorted_runs: largest number of sorted runs that 95 % of the buckets may have (`sorted_runs_p95`), None for no
            such limit. It is ignored for append tables, which have no sorted runs.
        freshness_ms: highest age of the newest visible commit in ms (`freshness`), or None.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    if sorted_runs is None and freshness_ms is None:
        return {}
    history = read_recent_history(store, since_ms, now_ms)
    measured = {
        SORTED_RUNS: None if sorted_runs is None else measure_sorted_runs(store, history, sorted_runs),
        FRESHNESS: None if freshness_ms is None else measure_freshness(store, history, freshness_ms),
    }
    return {name: result for name, result in measured.items() if result is not None}
