"""Presets: maintenance rules and table options for the seven usual table designs, each value with its reason."""

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
class PresetValue:
    """Value that a preset recommends.

    Attributes:
        value: the value.
        why: reason of the recommendation.
    """

    value: Any
    why: str


@dataclass(frozen=True)
class Preset:
    """Rules and options for one table design.

    Attributes:
        meant_for: description of the design.
        values: policy values, keyed by the path of keys in the policy file.
        options: table options as texts.
    """

    meant_for: str
    values: Mapping[tuple[str, ...], PresetValue]
    options: Mapping[str, PresetValue]


PRESETS: Final[Mapping[PresetName, Preset]] = MappingProxyType(
    {
        "merge-on-write-gentle": Preset(
            "primary keys, many readers: deletion vectors save them the merge, and compactions are small and frequent",
            {
                ("level0_warn",): PresetValue(20, "readers do not see level 0, so a backlog is missing data"),
                ("level0_critical",): PresetValue(100, "readers miss the data of 100 files"),
                ("idle_after",): PresetValue(
                    "1 d", "level-0 files of a partition without writers stay invisible until they are compacted"
                ),
                ("idle_min_runs",): PresetValue(2, "the second run holds deleted rows or rows that readers do not see"),
            },
            {
                "deletion-vectors.enabled": PresetValue("true", "readers skip deleted rows instead of merging runs"),
                "lookup-compact": PresetValue("gentle", "level 0 is compacted every few commits, not at each commit"),
                "lookup-compact.max-interval": PresetValue(
                    "10", "readers see all rows after ten commits at the latest"
                ),
            },
        ),
        "copy-on-write": Preset(
            "primary keys, few commits, small: each commit leaves one sorted run, fast to read for every engine",
            {
                ("level0_warn",): PresetValue(2, "each file in level 0 is a commit that was not compacted"),
                ("level0_critical",): PresetValue(
                    10, "ten commits without compaction: the writers' own compaction does not run"
                ),
                ("idle_after",): PresetValue("1 d", "every reader has to merge a partition that was not compacted"),
                ("retention", "snapshots", "retain_max"): PresetValue(
                    50, "each snapshot keeps a whole copy of the files it rewrote"
                ),
            },
            {"full-compaction.delta-commits": PresetValue("1", "each commit is followed by a full compaction")},
        ),
        "multi-writer": Preset(
            "primary keys, several writers at once: only Dredge compacts, so writers never conflict over a compaction",
            {
                ("level0_warn",): PresetValue(100, "each commit of each writer adds files to level 0"),
                ("level0_critical",): PresetValue(1_000, "each read merges all of these files"),
                ("idle_after",): PresetValue("1 d", "no writer compacts a partition that it no longer writes to"),
            },
            {"write-only": PresetValue("true", "two compactions of one bucket conflict, and the work of one is lost")},
        ),
        "high-throughput-asynchronous": Preset(
            "primary keys, commits every minute or more often: writers never wait, compaction runs in the background",
            {
                ("level0_warn",): PresetValue(
                    1_000, "hundreds of files arrive within an hour, and the next compaction removes them"
                ),
                ("level0_critical",): PresetValue(10_000, "compaction no longer keeps up with the writers"),
                ("idle_after",): PresetValue("6 h", "partitions close soon and leave many uncompacted files"),
                ("verification",): PresetValue(
                    "sampled", "outputs are large, and the blocking check compares all rows afterwards"
                ),
            },
            {
                "num-sorted-run.stop-trigger": PresetValue("2147483647", "writers never wait for a compaction"),
                "sort-spill-threshold": PresetValue("10", "many runs are merged without opening all of them at once"),
                "lookup-wait": PresetValue("false", "commits do not wait for the changelog lookup"),
            },
        ),
        "log": Preset(
            "no primary key, writers merge their small files themselves",
            {
                ("idle_after",): PresetValue("7 d", "late rows still arrive for some days"),
                ("idle_min_files",): PresetValue(
                    10, "writers leave few small files: merging them again is seldom worth a run"
                ),
            },
            {},
        ),
        "log-write-only": Preset(
            "no primary key, write-only writers: only Dredge merges small files",
            {
                ("idle_after",): PresetValue("6 h", "no writer merges small files, and readers open every file"),
                ("idle_min_files",): PresetValue(5, "five small files are worth one rewrite"),
            },
            {"write-only": PresetValue("true", "writers finish sooner and do not conflict with compactions")},
        ),
        "large-z-ordered": Preset(
            "no primary key, terabytes, sorted by several columns: sorted data is not rewritten for a few small files",
            {
                ("idle_after",): PresetValue("7 d", "late rows have arrived before the partition is sorted"),
                ("idle_min_files",): PresetValue(
                    50, "merging files mixes sorted rows: only many small files are worth it"
                ),
                ("verification",): PresetValue("sampled", "reading terabytes again costs more than the rewrite"),
            },
            {"target-file-size": PresetValue("512 mb", "fewer files, each with narrow ranges of the sorted columns")},
        ),
    }
)
