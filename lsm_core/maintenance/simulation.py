"""Simulation of policies: a table's commits, with sizes and times, replayed through the code that picks compactions.

The writers' commits are taken from the snapshots; actual compactions are ignored, and each policy picks compactions
again. Only metadata is read, and nothing is written. Simplifications, listed in docs/platform.md: a compaction takes no
time, and the share of bytes saved by merging rows of one key is the median of the table's own compactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.actions.compact.incremental_clustering import choose_clustering
from lsm_core.maintenance.actions.compact.planning import Calibration, calibration_of, compaction_seconds
from lsm_core.maintenance.actions.compact.unit_choice import NOTHING_EXPIRED, choose_bins, decide, levels_of, task_of
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable, require_whole_rows
from lsm_core.options import duration, find_key, whole_number
from lsm_core.tree import DataFile, Decline, SortedRun

AS_IT_IS: Final = "as it is"
BINS: Final = 60
"""Number of intervals of equal length that the history is cut into for the plots."""
_P95: Final = 0.95
_DAY_MS: Final = 86_400_000
_WEEK_DAYS: Final = 7
_COLUMNS: Final = (
    "kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count", "min_key", "max_key",
    "min_sequence_number", "max_sequence_number", "schema_id", "level", "creation_time_ms", "delete_row_count",
)  # fmt: skip
Floats = npt.NDArray[np.float64]

SIMULATION: Final = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("commits", pa.int64()),
        pa.field("bytes_written", pa.int64()),
        pa.field("compactions", pa.int64()),
        pa.field("bytes_read", pa.int64()),
        pa.field("bytes_rewritten", pa.int64()),
        pa.field("write_amplification", pa.float64()),
        pa.field("mean_runs", pa.float64()),
        pa.field("p95_runs", pa.int64()),
        pa.field("level0_peak", pa.int64()),
        pa.field("runs_at_end", pa.int64()),
        pa.field("cost_seconds", pa.float64()),
        pa.field("worst_week_runs", pa.float64()),
        pa.field("worst_week_rewritten", pa.int64()),
        pa.field("worst_week_start_ms", pa.int64()),
        pa.field("runs_over_time", pa.list_(pa.float64())),
        pa.field("rewritten_over_time", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class SimulatedPolicy:
    """Policy to simulate.

    Attributes:
        name: name of the policy.
        options: table options in place of the table's own.
        look_every_ms: interval (ms) between checks for due compactions; None checks after every commit, like writers
            that compact.
        idle_after_ms: time (ms) without commits after which a bucket is compacted in full, None for never.
        idle_min_runs: smallest number of sorted runs for a full compaction of an idle bucket.
        idle_min_files: smallest number of small files for a full compaction of an idle bucket of an append table.
        next_open: function that returns the first time (epoch ms) at or after its argument at which work may start, or
            None if there is no such time. None if work may always start.
    """

    name: str = AS_IT_IS
    options: Mapping[str, str] = field(default_factory=dict)
    look_every_ms: int | None = None
    idle_after_ms: int | None = None
    idle_min_runs: int = 2
    idle_min_files: int = 5
    next_open: Callable[[int], int | None] | None = None

    @staticmethod
    def of(description: SimulatedPolicy | Mapping[str, Any], name: str = "") -> SimulatedPolicy:
        """Return the policy that a mapping describes.

        Args:
            description: table options, by their names or under "options", and the keys ``name``, ``look_every``,
                ``idle_after``, ``idle_min_runs`` and ``idle_min_files``. ``look_every`` and ``idle_after`` take Paimon
                durations (`5 min`, `20 d`). A policy is returned unchanged.
            name: name of the policy if the description has none.

        Raises:
            InvalidOption: a key is none of these, or a value is invalid.
        """
        if isinstance(description, SimulatedPolicy):
            return description
        if not isinstance(description, Mapping):
            raise InvalidOption("policy", description, "a mapping of table options, look_every, idle_after")
        options: dict[str, str] = {}
        values: dict[str, Any] = {"name": str(description.get("name") or (name if description else "") or AS_IT_IS)}
        inner = description.get("options") or {}
        if not isinstance(inner, Mapping):
            raise InvalidOption("options", inner, "a mapping of table options")
        for key, value in [*inner.items(), *((k, v) for k, v in description.items() if k not in ("name", "options"))]:
            if key not in inner and key in ("look_every", "idle_after"):
                values[f"{key}_ms"] = None if value is None else _span(value, key)
            elif key not in inner and key in ("idle_min_runs", "idle_min_files"):
                values[key] = whole_number(value, key, least=2)
            elif find_key(str(key)) is not None:
                options[str(key)] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                raise InvalidOption(
                    "policy", key, "a table option, look_every, idle_after, idle_min_runs, idle_min_files"
                )
        return SimulatedPolicy(options=options, **values)


def _span(value: object, key: str) -> int:
    span = duration(value if isinstance(value, int | str) else str(value), key)
    if span <= 0:
        raise InvalidOption(key, value, "a span of time above 0")
    return span


def simulate(
    store: TableStore,
    policies: Sequence[SimulatedPolicy | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]] = (),
    history: tuple[int | None, int | None] | None = None,
) -> pa.Table:
    """Replay the writers' commits under each policy.

    Args:
        store: the table.
        policies: mappings as for `SimulatedPolicy.of`, also by name; empty to simulate the table's own options.
        history: ids of the first and last snapshot to replay, None for all. The replay starts with the files that are
            live before the first snapshot.

    Returns:
        One row per policy (schema `SIMULATION`), in order. Bytes are file sizes. ``write_amplification`` is all bytes
            written divided by the bytes that writers wrote (null if they wrote none). ``mean_runs`` and ``p95_runs``
            are the sorted runs (append tables: files) of a bucket at a random time. ``worst_week_runs`` is that mean in
            the seven days where it is highest, which begin at ``worst_week_start_ms`` (epoch ms).
            ``worst_week_rewritten`` is the largest number of bytes rewritten in seven days. A history of less than
            seven days is one week. ``level0_peak`` and ``runs_at_end`` are those of the worst bucket. ``cost_seconds``
            is for one core, calibrated by the table's ledger.

    Raises:
        InvalidOption: a policy or the history is invalid, or an option is immutable.
        SnapshotNotFound: a snapshot has expired.
        UnsupportedFeature: Dredge cannot compact the table.
        CorruptFile: metadata cannot be read.
    """
    listed = enumerate(policies, 1) if not isinstance(policies, Mapping) else ()
    named = policies.items() if isinstance(policies, Mapping) else ((f"policy {n}", policy) for n, policy in listed)
    chosen = [SimulatedPolicy.of(mapping, name) for name, mapping in named] or [SimulatedPolicy()]
    stores = [store.copy(policy.options) for policy in chosen]
    replay = _read_history(store, history)
    calibration = calibration_of(store)
    tallies = [_Tally(replay.start_ms, replay.end_ms) for _ in chosen]
    for group in bucket_groups(replay.entries):
        files = tree_files(store, group[3])
        steps = _steps(group[3], files)
        for policy, own, tally in zip(chosen, stores, tallies, strict=True):
            _Bucket(own, policy, replay, tally).replay(steps)
    rows = [_row(policy, tally, replay, calibration) for policy, tally in zip(chosen, tallies, strict=True)]
    return pa.Table.from_pylist(rows, SIMULATION)  # one row per policy


@dataclass(frozen=True)
class _History:
    """All changes of files by writers, in order.

    Attributes:
        entries: manifest entries with ``time_ms`` and ``step`` (0: the initial files).
        start_ms: start of the replay (epoch ms).
        end_ms: end of the replay (epoch ms).
        commits: number of commits.
        bytes_written: bytes that writers added.
        novelty: share (0 to 1) that a compaction keeps of the bytes of all its runs except the largest. Rows of new
            keys are kept, and updates replace rows of known keys.
    """

    entries: pa.Table
    start_ms: int
    end_ms: int
    commits: int
    bytes_written: int
    novelty: float


def _read_history(store: TableStore, history: tuple[int | None, int | None] | None) -> _History:
    ids = snapshots.list_ids(store)
    if not ids:
        raise InvalidOption("history", history or "all", "a table with snapshots", store.name)
    first, last = (None, None) if history is None else history
    a = ids[0] if first is None else whole_number(first, "history", store.name)
    b = ids[-1] if last is None else whole_number(last, "history", store.name)
    if a > b:
        raise InvalidOption(
            "history", f"{a}:{b}", f"two snapshots of {ids[0]} to {ids[-1]}, the older one first", store.name
        )
    require_compactable(store, snapshots.read(store, b))
    require_whole_rows(store, "a simulation of a table")
    before = snapshots.try_read(store, a - 1) if a > 1 else None
    parts: list[pa.Table] = []
    if a > 1 and before is None:
        before, a = snapshots.read(store, a), a + 1  # the files before it are unknown
    if before is not None:
        live = manifests.live_entries(store, before, columns=_COLUMNS)
        parts.append(_add_stamps(live, before.time_millis, 0))
    start = None if before is None else before.time_millis
    now, commits, written = start or 0, 0, 0
    novelties: list[float] = []
    for number in range(a, b + 1):
        snapshot = snapshots.read(store, number)
        start = snapshot.time_millis if start is None else start
        now = max(now, snapshot.time_millis)
        if snapshot.commit_kind is CommitKind.COMPACT:
            novelties += _new_run_shares(store, snapshot)
            continue
        delta = manifests.delta_entries(store, snapshot).select(_COLUMNS)
        if delta.num_rows:
            commits += 1
            added = delta.filter(pc.equal(delta.column("kind"), 0))
            written += pc.sum(added.column("file_size")).as_py() or 0
            parts.append(_add_stamps(delta, now, number))
    entries = pa.concat_tables(parts) if parts else _add_stamps(manifests.NO_ENTRIES.select(_COLUMNS), 0, 0)
    entries = entries.filter(pc.greater_equal(entries.column("bucket"), 0))  # postponed rows are in no bucket yet
    novelty = median(novelties) if novelties else 1.0
    return _History(entries, start or now, now, commits, written, novelty)


def _add_stamps(entries: pa.Table, time_ms: int, step: int) -> pa.Table:
    count = entries.num_rows
    stamps = {"time_ms": np.full(count, time_ms, np.int64), "step": np.full(count, step, np.int64)}
    for name, values in stamps.items():
        entries = entries.append_column(name, arrow_array(values))
    return entries


def _new_run_shares(store: TableStore, snapshot: Snapshot) -> list[float]:
    """Return, for each bucket that a snapshot compacted, the share of bytes that merging the smaller runs kept.

    The share is (output bytes - bytes of the largest run) / bytes of all other runs, limited to 0..1. Files that were
    only upgraded do not count.
    """
    entries = manifests.delta_entries(store, snapshot).select(_COLUMNS)
    names = entries.column("file_name").combine_chunks()
    counts = pc.value_counts(names)
    moved = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    entries = entries.filter(pc.invert(pc.is_in(names, moved)))
    novelties = []
    for _, _, _, group in bucket_groups(entries):
        is_removed = numpy_array(pc.equal(group.column("kind"), 1))
        level, size = (numpy_array(group.column(name)).astype(np.int64) for name in ("level", "file_size"))
        runs = np.where(level > 0, level, -1 - np.arange(len(level)))[
            is_removed
        ]  # a file of level 0 is a run of its own
        sizes = (
            np.bincount(np.unique(runs, return_inverse=True)[1], size[is_removed]) if is_removed.any() else np.zeros(1)
        )
        smaller_bytes = float(sizes.sum() - sizes.max())
        if smaller_bytes > 0:
            novelties.append(min(1.0, max(0.0, (float(size[~is_removed].sum()) - float(sizes.max())) / smaller_bytes)))
    return novelties


@dataclass(frozen=True)
class _Step:
    """Changes of one bucket by one commit, or its initial files.

    Attributes:
        time_ms: time of the commit (epoch ms).
        added: files that the commit added.
        removed: files that the commit removed.
        commit: whether this is a commit; False for the bucket's initial files.
    """

    time_ms: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    commit: bool


def _steps(entries: pa.Table, files: Sequence[DataFile]) -> list[_Step]:
    """Return the commits of one bucket in order; ``files`` has the file of each entry of ``entries``."""
    kinds, times, steps = (numpy_array(entries.column(name)).astype(np.int64) for name in ("kind", "time_ms", "step"))
    ends = [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(files)]
    commits, start = [], 0
    for end in ends:
        own = range(start, end)
        added = tuple(files[i] for i in own if kinds[i] == 0)
        removed = tuple(files[i] for i in own if kinds[i] == 1)
        commits.append(_Step(int(times[start]), added, removed, bool(steps[start])))
        start = end
    return commits


class _Tally:
    """Figures of one policy over all buckets.

    Attributes:
        weights: by number of sorted runs, the time (ms) for which buckets had this number, summed over buckets.
        plot: sums for each of the equal intervals into which the history is divided for plots.
        days: sums for each day from the start of the history.
    """

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.start, self.end = start_ms, max(end_ms, start_ms + 1)
        self.weights: dict[int, int] = {}
        self.plot = _Intervals(start_ms, (self.end - start_ms) / BINS, BINS)
        self.days = _Intervals(start_ms, _DAY_MS, -(-(self.end - start_ms) // _DAY_MS))
        self.compactions = self.read = self.rewritten = self.peak = self.at_end = 0
        self.forecast = 0.0

    def add_state(self, runs: int, begin: int, end: int) -> None:
        """Record that a bucket had ``runs`` from ``begin`` to ``end`` (epoch ms), at least for 1 ms."""
        end = max(end, begin + 1)
        self.weights[runs] = self.weights.get(runs, 0) + end - begin
        self.plot.add_state(runs, begin, end)
        self.days.add_state(runs, begin, end)

    def add_compaction(self, moment: int, read: int, written: int) -> None:
        """Record a compaction at ``moment`` that read ``read`` bytes and wrote ``written`` bytes."""
        self.compactions += 1
        self.read += read
        self.rewritten += written
        self.forecast += compaction_seconds(read, 1)
        self.plot.add_bytes(moment, written)
        self.days.add_bytes(moment, written)

    def worst_week(self) -> tuple[float, int, int]:
        """Return the highest mean number of runs in seven days, the most bytes rewritten in seven days, and a time.

        The time is the start of the seven days with the highest mean (epoch ms).
        """
        runs, time, rewritten = (
            np.convolve(values, np.ones(min(_WEEK_DAYS, len(values))), "valid")
            for values in (self.days.runs_time, self.days.time, self.days.rewritten.astype(np.float64))
        )
        means = np.divide(runs, time, out=np.zeros(len(runs)), where=time > 0)
        day = int(means.argmax())
        return float(means[day]), round(float(rewritten.max())), self.start + day * _DAY_MS


class _Intervals:
    """Sums over intervals of equal length.

    Attributes:
        runs_time: number of sorted runs, multiplied by the share of the interval in which a bucket had it, summed over
            buckets.
        time: share of the interval in which a bucket had files, summed over buckets.
        rewritten: bytes written by compactions.
    """

    def __init__(self, start_ms: int, length_ms: float, count: int) -> None:
        self._start, self._length, self._count = start_ms, length_ms, count
        self.runs_time, self.time = np.zeros(count), np.zeros(count)
        self.rewritten = np.zeros(count, np.int64)

    def add_state(self, runs: int, begin: int, end: int) -> None:
        """Add the time from ``begin`` to ``end`` (epoch ms) in which a bucket had ``runs``."""
        low, high = (
            min(max((moment - self._start) / self._length, 0.0), float(self._count)) for moment in (begin, end)
        )
        first = min(int(low), self._count - 1)
        last = max(min(int(np.ceil(high)), self._count), first + 1)
        edges = np.arange(first, last)
        shares = np.clip(np.minimum(edges + 1, high) - np.maximum(edges, low), 0.0, 1.0)
        self.runs_time[first:last] += runs * shares
        self.time[first:last] += shares

    def add_bytes(self, moment: int, written: int) -> None:
        """Add the bytes that a compaction wrote at ``moment`` (epoch ms)."""
        place = int((moment - self._start) / self._length)
        self.rewritten[min(max(place, 0), self._count - 1)] += written


class _Bucket:
    """Files of one bucket under one policy."""

    def __init__(self, store: TableStore, policy: SimulatedPolicy, history: _History, tally: _Tally) -> None:
        self.store, self.policy, self.history, self.tally = store, policy, history, tally
        options = store.options
        self.keyed = store.has_primary_key
        early = options.incremental_size_threshold or options.optimization_interval or options.total_size_threshold
        forced = options.force_up_level0 or options.needs_lookup
        # With fewer runs no rule can pick a compaction.
        self.least = 1 if forced else 2 if early or not self.keyed else options.compaction_trigger
        self.small_below = options.compaction_file_size(self.keyed)
        self.files: dict[str, DataFile] = {}
        self.level0 = 0
        self.upper: dict[int, int] = {}
        self.outputs = 0
        self.now = self.written = history.start_ms
        self.merged_whole = False  # whether the bucket was compacted as idle since its last commit

    @property
    def runs(self) -> int:
        """Number of sorted runs, or of files in an append table."""
        return self.level0 + len(self.upper) if self.keyed else len(self.files)

    def replay(self, steps: Sequence[_Step]) -> None:
        """Replay the commits in order, with all checks for due compactions before, between and after the commits."""
        look: int | None = None
        for number, step in enumerate(steps):
            if number:
                look = self._look_until(look, step.time_ms)
            self._commit(step)
            look = self._next_look(step.time_ms, committed=True)
        self._look_until(look, self.history.end_ms + 1)
        self._count_until(self.history.end_ms)
        self.tally.at_end = max(self.tally.at_end, self.runs)

    def _commit(self, step: _Step) -> None:
        if step.commit or self.files:
            self._count_until(step.time_ms)
        self.now = step.time_ms
        for file in step.removed:
            if file.name in self.files:
                self._remove(file.name)
                continue
            # The file is the output of a compaction that the simulation made differently: its inputs are removed.
            for name in [name for name, own in self.files.items() if own.max_sequence <= file.max_sequence]:
                self._remove(name)
        for file in step.added:
            self._add(file)
        self.written, self.merged_whole = step.time_ms, False
        self.tally.peak = max(self.tally.peak, self.level0 if self.keyed else len(self.files))

    def _add(self, file: DataFile) -> None:
        self.files[file.name] = file
        if file.level == 0:
            self.level0 += 1
        else:
            self.upper[file.level] = self.upper.get(file.level, 0) + 1

    def _remove(self, name: str) -> None:
        file = self.files.pop(name)
        if file.level == 0:
            self.level0 -= 1
        else:
            self.upper[file.level] -= 1
            if not self.upper[file.level]:
                del self.upper[file.level]

    def _count_until(self, moment: int) -> None:
        """Add the state of the bucket until ``moment`` to the tally, and advance the clock to ``moment``."""
        if self.files:
            self.tally.add_state(self.runs, self.now, moment)
        self.now = max(self.now, moment)

    def _tick(self, moment: int) -> int | None:
        """Return the time of the first check at or after ``moment``, None if there is none before the replay ends."""
        every, start, next_open = self.policy.look_every_ms, self.history.start_ms, self.policy.next_open
        while True:
            tick = moment if every is None else start + -(-(moment - start) // every) * every
            opened = tick if next_open is None else next_open(tick)
            if opened is None or opened > self.history.end_ms:
                return None
            if opened <= tick:
                return tick
            moment = opened

    def _next_look(self, after: int, *, committed: bool) -> int | None:
        """Return the time of the next check that may find a due compaction.

        After a commit or a compaction this is the next possible time. Otherwise it is the first possible time after the
        bucket becomes idle or its last full compaction is too old.
        """
        if committed:
            return self._tick(after)
        moments = []
        if self.policy.idle_after_ms is not None and not self.merged_whole:
            moments.append(self.written + self.policy.idle_after_ms)
        interval = self.store.options.optimization_interval
        if interval and self.policy.look_every_ms is not None and self.keyed:
            fulls = [file.creation_ms for file in self.files.values() if file.level == max(self.upper, default=-1)]
            moments += [max(fulls) + interval + 1] if fulls else []
        later = [moment for moment in map(self._tick, moments) if moment is not None and moment > after]
        return min(later, default=None)

    def _look_until(self, look: int | None, limit: int) -> int | None:
        """Run all checks before ``limit``, and return the time of the first check at or after ``limit``.

        ``look`` is the time of the first check. A time of None means that no further check is needed.
        """
        while look is not None and look < limit:
            picked = self._look(look)
            every = self.policy.look_every_ms
            again = self._tick(look + every) if picked and every is not None else None
            look = again if again is not None else self._next_look(look, committed=False)
        return look

    def _look(self, moment: int) -> bool:
        """Run the compaction that is due at ``moment`` (epoch ms), if any, and return whether one was run."""
        after = self.policy.idle_after_ms
        idle = after is not None and not self.merged_whole and moment - self.written >= after
        if idle:
            self.merged_whole = True
            small = sum(file.size < self.small_below for file in self.files.values())
            idle = self.runs >= self.policy.idle_min_runs if self.keyed else small >= self.policy.idle_min_files
        if not idle and self.runs < self.least:
            return False
        outcome = self._compact_tree(moment, idle) if self.keyed else self._compact_bins(moment, idle)
        if outcome is None:
            return False
        replaced, outputs, read, written = outcome
        self._count_until(moment)
        for file in replaced:
            self._remove(file.name)
        for file in outputs:
            self._add(file)
        self.tally.add_compaction(moment, read, written)
        return True

    def _compact_tree(self, moment: int, full: bool) -> tuple[list[DataFile], list[DataFile], int, int] | None:
        """Return the files and bytes of the compaction that the rules for primary-key tables pick at ``moment``.

        ``full`` requests a full compaction.

        Returns:
            Replaced files, new files, bytes read and bytes written, or None if the rules pick no compaction.
        """
        files = tuple(self.files.values())
        decision = decide(self.store, files, moment, full)
        if isinstance(decision, Decline):
            return None
        task = task_of(self.store, levels_of(self.store, files), decision.unit, NOTHING_EXPIRED, ())
        replaced = [*task.rewritten_files, *task.upgrades]
        outputs = [file.upgrade(task.output_level) for file in task.upgrades]
        written = 0
        for rewrite in task.rewrites:
            merged = list(self._merge_outputs(rewrite, task.output_level, moment, task.drop_delete))
            outputs += merged
            written += sum(file.size for file in merged)
        return replaced, outputs, sum(file.size for file in task.rewritten_files), written

    def _merge_outputs(
        self, runs: Sequence[SortedRun], level: int, moment: int, drop_delete: bool
    ) -> Iterator[DataFile]:
        """Yield the output files of merging ``runs``, split like the largest run.

        The files are on ``level`` and created at ``moment``. With ``drop_delete`` they have no delete
        records. The total size is that of the largest run plus a share (`_History.novelty`) of the bytes of the smaller
        runs.
        """
        inputs = [file for run in runs for file in run.files]
        largest = max(runs, key=lambda run: run.size)
        size = largest.size + self.history.novelty * sum(run.size for run in runs if run is not largest)
        rows, deletes = sum(file.row_count for file in inputs), sum(file.delete_row_count or 0 for file in inputs)
        share = size / max(sum(run.size for run in runs), 1)
        low, high = min(file.min_key for file in inputs), max(file.max_key for file in inputs)
        last = len(largest.files) - 1
        for number, file in enumerate(largest.files):
            part = file.size / max(largest.size, 1)
            yield replace(
                file,
                name=self._output_name(),
                level=level,
                size=max(round(size * part), 1),
                min_key=low if number == 0 else file.min_key,
                max_key=high if number == last else file.max_key,
                row_count=round(rows * share * part),
                min_sequence=min(input_file.min_sequence for input_file in inputs),
                max_sequence=max(input_file.max_sequence for input_file in inputs),
                creation_ms=moment,
                delete_row_count=0 if drop_delete else round(deletes * part),
            )

    def _compact_bins(self, moment: int, full: bool) -> tuple[list[DataFile], list[DataFile], int, int] | None:
        """Return the files and bytes of the compaction that the rules for append tables pick at ``moment``.

        Each bin, a group of files to join, becomes one file. ``full`` requests a full compaction.

        Returns:
            Replaced files, new files, bytes read and bytes written, or None if the rules pick no compaction.
        """
        level = 0
        if self.store.options.clusters_incrementally:
            decision = choose_clustering(self.store, tuple(self.files.values()), full)
            bins = decision if isinstance(decision, Decline) else [list(decision.unit.files)]
            level = 0 if isinstance(decision, Decline) else decision.unit.output_level
        else:
            bins = choose_bins(self.store, tuple(self.files.values()), full)
        if isinstance(bins, Decline):
            return None
        outputs = [
            replace(
                chosen[0],
                name=self._output_name(),
                level=level,
                size=sum(file.size for file in chosen),
                row_count=sum(file.row_count for file in chosen),
                max_sequence=max(file.max_sequence for file in chosen),
                creation_ms=moment,
            )
            for chosen in bins
        ]
        replaced = [file for chosen in bins for file in chosen]
        size = sum(file.size for file in replaced)
        return replaced, outputs, size, size

    def _output_name(self) -> str:
        self.outputs += 1
        return f"simulated-{self.outputs}"


def _row(policy: SimulatedPolicy, tally: _Tally, history: _History, calibration: Calibration) -> dict[str, Any]:
    weights = sorted(tally.weights.items())
    total = sum(weight for _, weight in weights)
    seen, p95 = 0, 0
    for runs, weight in weights:
        seen, p95 = seen + weight, runs
        if seen >= _P95 * total:
            break
    written = history.bytes_written
    plot = tally.plot
    means: Floats = np.divide(plot.runs_time, plot.time, out=np.zeros(BINS), where=plot.time > 0)
    worst_runs, worst_rewritten, worst_start = tally.worst_week()
    return {
        "policy": policy.name,
        "commits": history.commits,
        "bytes_written": written,
        "compactions": tally.compactions,
        "bytes_read": tally.read,
        "bytes_rewritten": tally.rewritten,
        "write_amplification": round((written + tally.rewritten) / written, 3) if written else None,
        "mean_runs": round(sum(runs * weight for runs, weight in weights) / total, 3) if total else 0.0,
        "p95_runs": p95,
        "level0_peak": tally.peak,
        "runs_at_end": tally.at_end,
        "cost_seconds": round(calibration.predicted_seconds(tally.forecast), 3),
        "worst_week_runs": round(worst_runs, 3),
        "worst_week_rewritten": worst_rewritten,
        "worst_week_start_ms": worst_start,
        "runs_over_time": np.round(means, 3).tolist(),
        "rewritten_over_time": plot.rewritten.tolist(),
    }
