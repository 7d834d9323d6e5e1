"""A retract that is a first-row key's only version: Java writes it, and cannot compact it; here it takes back nothing."""

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
