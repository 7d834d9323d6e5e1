"""A retract that is the only version of its key: what Java and Dredge make of it in compactions that look keys up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.test_changelogs import NAMES, Java, rows_of, streamed, twins


@pytest.mark.paimon_java
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("producer", ["lookup", "none"])
def test_a_lone_retract_of_a_first_row_table_is_neither_told_nor_the_first_row(
    tmp_path: Path, java: Java, producer: str, full: bool
) -> None:
    options = {"bucket": "1", "merge-engine": "first-row", "changelog-producer": producer, "write-only": "true"}
    table, _ = twins(java, tmp_path, {**options, "num-sorted-run.compaction-trigger": "2", "num-levels": "4"})
    java("write", table="db.theirs", rows=rows_of([("+I", 1, 10), ("-D", 9, 1), ("-U", 8, 3)]))
    with pytest.raises(Exception, match="First row merge engine can not accept DELETE"):
        java("compact", table="db.theirs", full=full, options={"write-only": "false"})
    expected: list[tuple[Any, ...]] = [(1, 10, "s10")]
    for commit in ([], [("+I", 9, 7), ("+I", 2, 20)], [("+I", 9, 8)]):
        if commit:
            java("write", table="db.theirs", rows=rows_of(commit))
            expected += [(k, v, f"s{v}") for _, k, v in commit if k not in {row[0] for row in expected}]
        table.compact(full=full)
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == sorted(expected)
        assert sorted(tuple(row[n] for n in NAMES) for row in java("read", table="db.theirs")["rows"]) == sorted(
            expected
        )
        assert all(file.delete_row_count == 0 for split in table.plan_scan() for file in split.files)
    if producer == "lookup":
        result = [change for changes in streamed(java, table, "db.theirs") for change in changes]
        assert sorted(result) == sorted(("+I", row) for row in expected)


SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
ONLY_VERSIONS: dict[str, tuple[dict[str, str], list[tuple[Any, ...]]]] = {
    "sums": ({**SUMS, "changelog-producer": "lookup"}, [(1, -5, None), (2, -7, None), (3, 4, "s4")]),
    "sums, vectors": ({**SUMS, "deletion-vectors.enabled": "true"}, [(1, -5, None), (2, -7, None), (3, 4, "s4")]),
    "remove on delete": (
        {**SUMS, "aggregation.remove-record-on-delete": "true", "changelog-producer": "lookup"},
        [(2, -7, None), (3, 4, "s4")],
    ),
    "groups": (
        {"merge-engine": "partial-update", "fields.v.sequence-group": "s", "changelog-producer": "lookup"},
        [(3, 4, "s4")],
    ),
}
"""Options, and what a compaction makes of a -D of (1, 5), a -U of (2, 7) and a row (3, 4)."""


@pytest.mark.paimon_java
@pytest.mark.parametrize("case", ONLY_VERSIONS)
def test_what_a_lookup_makes_of_a_retract_of_nothing_is_no_difference(tmp_path: Path, java: Java, case: str) -> None:
    options, expected = ONLY_VERSIONS[case]
    theirs, ours = twins(java, tmp_path, {"bucket": "1", "write-only": "true", **options})
    for name in ("db.theirs", "db.ours"):
        java("write", table=name, rows=rows_of([("-D", 1, 5), ("-U", 2, 7), ("+I", 3, 4)]), compact="none")
        java("write", table=name, rows=rows_of([("+I", 9, 1)]), compact="none")
    java("compact", table="db.theirs", full=True, options={"write-only": "false"})
    ours.compact(full=True)
    for name, table in (("db.theirs", theirs), ("db.ours", ours)):
        rows = sorted(tuple(row[n] for n in NAMES) for row in java("read", table=name)["rows"])
        assert rows == [*expected, (9, 1, "s1")]
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == rows
        assert table.verify(2, 3).ok
