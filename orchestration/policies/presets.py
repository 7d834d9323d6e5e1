"""Presets: what the seven usual designs of a table want of maintenance, and of the table's own options, each value with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

PresetName = Literal[
    "merge-on-write-gentle",
    "copy-on-write",
    "multi-writer",
    "high-throughput-asynchronous",
    "log",
    "log-write-only",
    "large-z-ordered",
]


@dataclass(frozen=True)
class Chosen:
    """A value, and why it is that one."""

    value: Any
    why: str


@dataclass(frozen=True)
class Preset:
    """One design. ``values``: of a policy, by the keys that lead to each in the file; ``options``: of the table, as texts."""

    meant_for: str
    values: Mapping[tuple[str, ...], Chosen]
    options: Mapping[str, Chosen]


PRESETS: Final[Mapping[PresetName, Preset]] = MappingProxyType(
    {
        "merge-on-write-gentle": Preset(
            "primary keys, many readers: deletion vectors spare them the merge, and compactions come little by little",
            {
                ("level0_warn",): Chosen(20, "readers see nothing of level 0, so that a backlog is missing data"),
                ("level0_critical",): Chosen(100, "by then readers are far behind"),
                ("idle_after",): Chosen(
                    "1 d", "what waits in level 0 of a partition that nobody writes to stays unseen"
                ),
                ("idle_min_runs",): Chosen(2, "two runs hold rows that are marked as deleted, or not seen at all"),
            },
            {
                "deletion-vectors.enabled": Chosen("true", "readers pass over marked rows instead of merging runs"),
                "lookup-compact": Chosen("gentle", "level 0 rises every few commits, not at each of them"),
                "lookup-compact.max-interval": Chosen("10", "after ten commits at the latest readers see all"),
            },
        ),
        "copy-on-write": Preset(
            "primary keys, few commits, small: every commit leaves one sorted run, which any engine reads at full speed",
            {
                ("level0_warn",): Chosen(2, "a file in level 0 is a commit that was not merged"),
                ("level0_critical",): Chosen(10, "ten unmerged commits: the writers' own compaction does not run"),
                ("idle_after",): Chosen("1 d", "a partition that was left unmerged is one that every reader merges"),
                ("retention", "snapshots", "retain_max"): Chosen(
                    50, "each snapshot holds a whole copy of what it rewrote"
                ),
            },
            {"full-compaction.delta-commits": Chosen("1", "each commit is followed by a full compaction")},
        ),
        "multi-writer": Preset(
            "primary keys, several writers at once: nobody compacts but Dredge, so that writers never collide over it",
            {
                ("level0_warn",): Chosen(100, "each commit of each writer adds files to level 0"),
                ("level0_critical",): Chosen(1_000, "reads merge every one of them"),
                ("idle_after",): Chosen("1 d", "no writer would ever tidy up a partition that it has left"),
            },
            {"write-only": Chosen("true", "two that compact one bucket collide, and one of them works for nothing")},
        ),
        "high-throughput-asynchronous": Preset(
            "primary keys, commits every minute or oftener: writers never wait, compaction follows when it can",
            {
                ("level0_warn",): Chosen(
                    1_000, "hundreds of files come within an hour and go with the next compaction"
                ),
                ("level0_critical",): Chosen(10_000, "compaction no longer follows"),
                ("idle_after",): Chosen("6 h", "partitions end soon, and what is left in them is a lot"),
                ("verification",): Chosen(
                    "sampled", "outputs are large, and the blocking check compares all of them afterwards"
                ),
            },
            {
                "num-sorted-run.stop-trigger": Chosen("2147483647", "writers never wait for a compaction"),
                "sort-spill-threshold": Chosen("10", "many runs are merged without holding all of them open"),
                "lookup-wait": Chosen("false", "commits do not wait for the lookup of changelogs"),
            },
        ),
        "log": Preset(
            "no primary key, writers gather their small files themselves",
            {
                ("idle_after",): Chosen("7 d", "late rows still come for some days"),
                ("idle_min_files",): Chosen(10, "writers left few: to gather them again is seldom worth it"),
            },
            {},
        ),
        "log-write-only": Preset(
            "no primary key, writers that only write: Dredge alone gathers small files",
            {
                ("idle_after",): Chosen("6 h", "nobody else gathers, and readers open every file"),
                ("idle_min_files",): Chosen(5, "a handful of small files is worth one rewrite"),
            },
            {"write-only": Chosen("true", "writers are done sooner, and do not collide with compactions")},
        ),
        "large-z-ordered": Preset(
            "no primary key, terabytes, sorted by several columns: what is sorted is not to be rewritten for a few small files",
            {
                ("idle_after",): Chosen("7 d", "late rows come first, the sort comes last"),
                ("idle_min_files",): Chosen(50, "gathering files mixes what was sorted: only many are worth it"),
                ("verification",): Chosen("sampled", "to read terabytes again costs more than the rewrite"),
            },
            {"target-file-size": Chosen("512 mb", "fewer files, each with narrow ranges of the sorted columns")},
        ),
    }
)

__all__ = ["PRESETS", "Chosen", "Preset", "PresetName"]
