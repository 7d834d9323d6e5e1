"""How much a bucket needs maintenance (0 to 100), said with its reasons, and what helping it would cost in bytes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.actions.compact.unit_choice import NOTHING_DELETED, choose_bins, decide
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import tree_files
from lsm_core.options import TableOptions
from lsm_core.read.prune import ExpiredFiles, expired_files
from lsm_core.tree import DataFile, Decline, DeclineReason, Facts, Trigger

Ints = npt.NDArray[np.int64]
_MUCH_DELETED = 0.1
_FILES_AT_ONCE = 50_000


@dataclass(frozen=True)
class Signs:
    """What a score is made of: sorted runs, level-0 files, space amplification, deletes over rows, small files, bytes.

    ``hidden``: rows of level 0 that batch reads do not see before they are compacted. ``marked``: rows that deletion vectors mark;
    ``most_marked``: the largest share of the rows of one file.
    """

    runs: int
    level0: int
    space: float
    delete_ratio: float
    small_files: int
    bytes: int
    has_primary_key: bool
    hidden: int = 0
    marked: int = 0
    most_marked: float = 0.0


def score(signs: Signs, options: TableOptions) -> tuple[float, tuple[str, ...]]:
    """Score and reasons: the worst sign decides; every sign at half or more of its limit is told."""
    if signs.has_primary_key:
        trigger, limit = options.compaction_trigger, 1 + options.max_size_amplification / 100
        sign = ">=" if signs.runs >= trigger else "<"
        found = [
            ((signs.runs - 1) / max(trigger - 1, 1), f"{signs.runs} sorted runs {sign} {trigger}"),
            (
                (signs.space - 1) / max(limit - 1, 0.01) if signs.runs > 1 else 0.0,
                f"space amplification {signs.space:.2f} (limit {limit:.2f})",
            ),
            (
                min(0.9, signs.delete_ratio / (2 * _MUCH_DELETED)),
                f"{signs.delete_ratio:.1%} of the rows are deletes{' or marked as deleted' if signs.marked else ''}",
            ),
            (0.5 if signs.hidden else 0.0, f"{signs.hidden} rows are not visible before they are compacted"),
        ]
    else:
        least = options.min_file_num
        sign = ">=" if signs.small_files >= least else "<"
        most = float(options.get("compaction.delete-ratio-threshold"))
        share = signs.most_marked / most if most > 0 else float(signs.marked > 0)
        # Without buckets the next compaction takes a file beyond the threshold; of buckets only a full one does.
        due = share if options.bucket < 1 else min(0.9, share)
        found = [
            ((signs.small_files - 1) / max(least - 1, 1), f"{signs.small_files} small files {sign} {least}"),
            (due, f"{signs.most_marked:.1%} of a file's rows are deleted (threshold {most:.1%})"),
        ]
    reasons = tuple(text for share, text in sorted(found, key=lambda sign: -sign[0]) if share >= 0.5)
    return round(100 * min(1.0, max(share for share, _ in found)), 1), reasons


def full_cost(signs: Signs, options: TableOptions) -> int:
    """Bytes that a full compaction reads; 0 where it would find nothing to do."""
    if not signs.has_primary_key:
        return signs.bytes if signs.small_files > 1 or signs.marked else 0
    done = signs.runs <= 1 and signs.level0 == 0 and not options.force_rewrite_all
    return 0 if done else signs.bytes


@dataclass(frozen=True)
class DueCompaction:
    """The compaction that the table's rules pick for a bucket now: bytes that it reads (0: none is due), the rule or why none, its numbers."""

    cost: int = 0
    decision: str = ""
    facts: Facts = field(default_factory=dict)


def due_compactions(
    store: TableStore,
    entries: pa.Table,
    starts: Ints,
    runs: Ints,
    now_ms: int,
    marked: Mapping[str, int] = NOTHING_DELETED,
) -> Mapping[int, DueCompaction]:
    """The compaction that is due in each bucket whose runs suffice for one of the table's rules; for the others :func:`too_few_runs`.

    ``entries`` are sorted by bucket, the n-th of which begins at ``starts[n]``. That a tree is small
    (`compaction.total-size-threshold`) is told below the trigger as the rule that a plan made now would go by, but at no
    cost: it would be due after every commit. It decides how much is compacted once the trigger is reached. ``marked``: by file
    name, rows that a deletion vector marks.
    """
    options = store.options
    early = options.incremental_size_threshold or options.optimization_interval or options.total_size_threshold
    forced = options.force_up_level0 or options.needs_lookup  # a lone file of level 0 moves up too
    least = 1 if forced else 2 if early else options.compaction_trigger
    ends = np.append(starts[1:], entries.num_rows)
    found: dict[int, DueCompaction] = {}
    if store.schema.primary_keys:
        considered = np.flatnonzero(runs >= least)
    else:
        # a lone file is worth a compaction where enough of its rows are deleted
        names = arrow_array(list(marked), pa.string())
        holds = numpy_array(pc.is_in(entries.column("file_name"), names)).astype(np.int64)
        considered = np.flatnonzero((ends - starts > 1) | (np.add.reduceat(holds, starts) > 0))
    for together in np.array_split(considered, -(-int((ends - starts)[considered].sum()) // _FILES_AT_ONCE) or 1):
        rows = np.concatenate([np.arange(starts[group], ends[group]) for group in together] or [starts])
        listed, at = entries.take(arrow_array(rows)), 0
        try:
            files = tree_files(store, listed)  # keys decoded together
        except UnsupportedFeature:  # keys without order here: nothing is due
            continue
        expired = expired_files(store, listed, now_ms)
        for group in together.tolist():
            count = int(ends[group] - starts[group])
            own, at = files[at : at + count], at + count
            said = _due_compaction(store, own, now_ms, int(runs[group]), expired, marked)
            if said is not None:
                found[group] = said
    return found


def _due_compaction(
    store: TableStore,
    files: list[DataFile],
    now_ms: int,
    runs: int,
    expired: ExpiredFiles,
    marked: Mapping[str, int],
) -> DueCompaction | None:
    """The compaction that is due in one bucket; None for tables that are not compacted here."""
    if not store.schema.primary_keys:
        bins = choose_bins(store, files, full=False, deleted=marked)
        if isinstance(bins, Decline):
            return DueCompaction(0, str(bins.reason), bins.facts)
        taken = [file for chosen in bins for file in chosen]
        gone = sum(marked.get(file.name, 0) for file in taken)
        facts: Facts = {"files": len(files), "small_files": len(taken), "bins": len(bins)}
        facts = {**facts, "deleted_rows": gone} if gone else facts
        return DueCompaction(sum(file.size for file in taken), str(Trigger.SMALL_FILES), facts)
    try:
        decision = decide(store, files, now_ms, expired=expired)
    except UnsupportedFeature:  # health is told of every table, also of those that are never compacted here
        return None
    if isinstance(decision, Decline):
        return DueCompaction(0, str(decision.reason), decision.facts)
    if decision.trigger is Trigger.TOTAL_SIZE and runs < store.options.compaction_trigger:
        return DueCompaction(0, str(decision.trigger), decision.facts)
    return DueCompaction(decision.unit.size, str(decision.trigger), decision.facts)


def too_few_runs(signs: Signs, oldest_run: int, options: TableOptions) -> DueCompaction:
    """What universal compaction says below its trigger, without making the bucket's files into objects; nothing for append tables.

    ``oldest_run``: bytes of the oldest run.
    """
    if not signs.has_primary_key:
        return DueCompaction()
    newer = signs.bytes - oldest_run
    facts: Facts = {
        "sorted_runs": signs.runs,
        "trigger_runs": options.compaction_trigger,
        "newer_bytes": newer,
        "oldest_run_bytes": oldest_run,
        "amplification_percent": newer * 100 // oldest_run if oldest_run else None,
        "max_amplification_percent": options.max_size_amplification,
    }
    few = signs.runs < options.compaction_trigger
    return DueCompaction(0, str(DeclineReason.TOO_FEW_RUNS) if few else "", facts)
