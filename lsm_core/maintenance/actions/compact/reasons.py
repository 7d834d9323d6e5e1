"""Texts of decisions: the sentences with figures in plans, ticks and ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lsm_core.maintenance.action import size_text
from lsm_core.options import TableOptions
from lsm_core.tree import DataFile, Decline, DeclineReason, Levels, Pick, Trigger

_RULES: Final = {
    Trigger.OPTIMIZATION_INTERVAL: "the last full compaction is older than compaction.optimization-interval",
    Trigger.TOTAL_SIZE: "total size below compaction.total-size-threshold",
    Trigger.INCREMENTAL_SIZE: "bytes outside the last level above compaction.incremental-size-threshold",
    Trigger.SIZE_AMPLIFICATION: "size amplification",
    Trigger.SIZE_RATIO: "runs of similar size",
    Trigger.FILE_COUNT: "too many runs",
    Trigger.FORCE_LEVEL0: "level 0 is forced up",
    Trigger.FULL: "full compaction asked for",
    Trigger.DELTA_COMMITS: "as many commits since the last full compaction as full-compaction.delta-commits allows",
    Trigger.SMALL_FILES: "small files",
}


def why_picked(pick: Pick, levels: Levels, options: TableOptions, dropped: int | None) -> str:
    """Return, for example, "15 sorted runs >= 5; size amplification: all to level 5; 195 tombstones dropped".

    Args:
        pick: the decision.
        levels: tree of the bucket.
        options: options of the table.
        dropped: number of dropped tombstones, None for unknown.
    """
    runs, trigger = len(levels.runs()), options.compaction_trigger
    parts = [f"{runs} sorted run{'s' if runs != 1 else ''}{_against(runs, trigger)}"]
    target = f"to level {pick.unit.output_level}"
    some = f"{len(pick.unit.files)} of {len(levels.files)} files"
    scope = f"all {target}" if pick.unit.full else f"{some} {target}"
    if pick.unit.by_file:
        why = "as compaction.force-rewrite-all-files asks" if options.force_rewrite_all else "as they hold expired rows"
        scope = f"{some} rewritten one by one, {why}"
    parts.append(f"{_RULES[pick.trigger]}: {scope}")
    if dropped is None:
        parts.append("an unknown number of tombstones dropped")
    elif dropped:
        parts.append(f"up to {dropped:,} tombstone{'s' if dropped != 1 else ''} dropped")
    return "; ".join(parts)


def _against(runs: int, trigger: int) -> str:
    return f" >= {trigger}" if runs >= trigger else f" < {trigger}"


def why_declined(decline: Decline, levels: Levels, options: TableOptions) -> str:
    """Return, for example, "4 sorted runs < 5; 52 KiB; a full compaction would ... save one merge of 4,155 rows".

    Args:
        decline: the decision.
        levels: tree of the bucket.
        options: options of the table.
    """
    files, runs = levels.files, len(levels.runs())
    if decline.reason is DeclineReason.EMPTY:
        return "the bucket is empty"
    if runs == 1:
        return "one sorted run: nothing to merge"
    rows, deletes = sum(file.row_count for file in files), sum(file.delete_row_count or 0 for file in files)
    parts = [f"{runs} sorted runs{_against(runs, options.compaction_trigger)}"]
    if decline.reason is DeclineReason.WITHIN_LIMITS:
        # Enough runs, yet no rule picks any: show the two ratios that decided it.
        percent, limit = decline.facts.get("amplification_percent"), decline.facts.get("max_amplification_percent")
        ratios = (
            f"newer runs hold {percent} % of the oldest run's bytes (limit {limit} %) "
            "and the newest are of unlike sizes: none picked"
        )
        parts.append(decline.text() if percent is None or limit is None else ratios)
    elif decline.reason is DeclineReason.WAITING:
        number, every = decline.facts.get("skipped_calls"), decline.facts.get("every_calls")
        parts.append(f"level 0 is forced up once in {every} decisions, this is number {number}")
    elif decline.reason is not DeclineReason.TOO_FEW_RUNS:
        parts.append(decline.text())
    parts.append(size_text(levels.total_size))
    dropping = f"drop up to {deletes:,} delete{'s' if deletes != 1 else ''} and " if deletes else ""
    parts.append(f"a full compaction would {dropping}save one merge of {rows:,} rows")
    return "; ".join(parts)


def why_not_packed(files: Sequence[DataFile], small: int, least: int) -> str:
    """Return, for example, "3 small files < 5".

    Args:
        files: files of the bucket.
        small: number of small files.
        least: smallest number to compact.
    """
    if not files:
        return "no files"
    if small >= least:
        return f"{small} small files, not more than the large ones behind the first of them ({len(files)} in all)"
    return f"{small} small file{'s' if small != 1 else ''} < {least} ({len(files)} in all)"


def why_packed(files: int, bins: int, least: int, full: bool, deleted: int = 0) -> str:
    """Return, for example, "18 small files >= 5 -> 1 file".

    Args:
        files: number of files to compact.
        bins: number of bins.
        least: smallest number to compact.
        full: whether a full compaction is requested.
        deleted: number of their rows that deletion vectors mark.
    """
    if deleted:
        counted = f"{files} file{'s' if files != 1 else ''} with {deleted} deleted rows"
        return f"{counted} -> {bins} bin{'s' if bins != 1 else ''}"
    rule = "full compaction asked for" if full else f">= {least}"
    return f"{files} small files {rule} -> {bins} bin{'s' if bins != 1 else ''}"
