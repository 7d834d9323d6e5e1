"""A compaction with lookups merges keys with one version, too: that is no difference, and every other change is one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.maintenance.checks.bucket_sample import read_sampled_rows
from lsm_core.maintenance.checks.expected_rows import rows_before
from lsm_core.maintenance.checks.outcome import CheckInput, CheckLimits
from lsm_core.maintenance.checks.row_comparison import ArrowRows, compare_rows
from lsm_core.metadata import snapshots
from lsm_core.table import Schema, Table
from tests.maintenance.tables import catalog, compact_wrongly, content

SUMS = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
GROUPS = {"merge-engine": "partial-update", "fields.g.sequence-group": "a"}
PRODUCERS = {"lookup": {"changelog-producer": "lookup"}, "vectors": {"deletion-vectors.enabled": "true"}}
ENGINES = {
    "sums": (SUMS, [(1, None, -5), (2, None, 7), (3, 1, 1)]),
    "groups": (GROUPS, [(2, None, None), (3, 1, 1)]),
}
"""Options and rows after the compaction: the sum of a retract of 5; a group without its sequence field is left out."""
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("g", pa.int64()), ("a", pa.int64())])


def _written(tmp_path: Path, options: dict[str, str]) -> Table:
    """Create a table in which key 1 is a retract of nothing, and key 2 has no sequence field; key 3 is a usual row."""
    options = {"bucket": "1", "write-only": "true", **options}
    table = catalog(tmp_path).create_table("db.t", Schema(FIELDS, ["k"], [], options))
    first = pa.table([[1, 2], pa.nulls(2, pa.int64()), [5, 7]], schema=FIELDS)
    table.write(first, row_kinds=pa.array(["-D", "+I"]))
    table.write(pa.table([[3], [1], [1]], schema=FIELDS))
    return table


def _newest(table: Table) -> int:
    newest = snapshots.latest_id(table.store)
    assert newest is not None
    return newest


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_merge_of_the_only_version_is_no_difference(tmp_path: Path, engine: str, producer: str) -> None:
    options, expected = ENGINES[engine]
    table = _written(tmp_path, {**options, **PRODUCERS[producer]})
    before = content(table, _newest(table))
    table.compact(full=True)
    compacted = _newest(table)
    assert content(table) == expected != before
    assert table.verify(compacted - 1, compacted).ok


@pytest.mark.parametrize("engine", ENGINES)
def test_an_undo_takes_the_merge_of_the_only_version_back(tmp_path: Path, engine: str) -> None:
    """An undo is refused where a changelog was emitted or rows would hide: only `force-lookup` allows it."""
    table = _written(tmp_path, {**ENGINES[engine][0], "force-lookup": "true"})
    before = content(table)
    run = table.compact(full=True)
    assert content(table) == ENGINES[engine][1]
    undone = table.undo(run.run_id)
    assert undone.differences == () and undone.verification == "V1"
    assert content(table) == before
    assert table.verify(_newest(table) - 1, _newest(table)).ok


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("key", "value"), [(2, 8), (3, 2)])
def test_every_other_change_of_a_row_is_a_difference(
    tmp_path: Path, engine: str, producer: str, key: int, value: int
) -> None:
    table = _written(tmp_path, {**ENGINES[engine][0], **PRODUCERS[producer]})
    wrong = compact_wrongly(table, key=key, value=value, column="a")
    report = table.verify(wrong - 1, wrong)
    assert [difference.bucket for difference in report.differences] == ["bucket-0"]


def test_a_wrong_merge_of_a_lone_retract_is_a_difference(tmp_path: Path) -> None:
    table = _written(tmp_path, {**SUMS, **PRODUCERS["lookup"]})
    wrong = compact_wrongly(table, key=1, value=-6, column="a")
    assert not table.verify(wrong - 1, wrong).ok


def test_a_later_compaction_merges_new_lone_versions_with_the_rest(tmp_path: Path) -> None:
    table = _written(tmp_path, {**SUMS, **PRODUCERS["lookup"]})
    table.compact(full=True)
    table.write(pa.table([[4, 3], pa.nulls(2, pa.int64()), [9, 1]], schema=FIELDS), row_kinds=pa.array(["-D", "-D"]))
    table.compact(full=True)
    compacted = _newest(table)
    assert content(table) == [(1, None, -5), (2, None, 7), (3, 1, 0), (4, None, -9)]
    assert table.verify(compacted - 1, compacted).ok


@pytest.mark.parametrize("engine", ENGINES)
def test_the_expectation_on_the_rows_before_knows_the_merge(tmp_path: Path, engine: str) -> None:
    options = {**ENGINES[engine][0], **PRODUCERS["lookup"]}
    table = _written(tmp_path / "right", options)
    table.compact(full=True)
    wrong = _written(tmp_path / "wrong", options)
    assert compact_wrongly(wrong, key=2, value=8, column="a") == 3
    for compacted, rows_wrong in ((table, 0), (wrong, 1)):
        asked = CheckInput("rows", compacted.store, snapshots.read(compacted.store, 3), CheckLimits())
        read = read_sampled_rows(asked)[0]
        report = compare_rows(compacted.store, rows_before(asked), ArrowRows(compacted.store, read))
        assert report.differing == rows_wrong


@pytest.mark.parametrize("options", [{}, {"fields.a.aggregate-function": "sum"}])
def test_stored_versions_that_are_merged_later_are_no_damage(tmp_path: Path, options: dict[str, str]) -> None:
    """A row whose sequence field is null is stored raw, and the next compaction of its key makes its columns null."""
    groups = {**GROUPS, **PRODUCERS["lookup"], "bucket": "1", **options}
    table = catalog(tmp_path).create_table("db.later", Schema(FIELDS, ["k"], options=groups))
    for rows in ([(1, None, 1), (2, 5, 1), (3, None, None)], [(1, None, 2), (9, 1, 1)], [(1, 4, 3), (3, None, 1)]):
        columns = [{"k": key, "g": sequence, "a": value} for key, sequence, value in rows]
        table.write(pa.Table.from_pylist(columns, schema=FIELDS))
        table.compact(full=False)
        refused = [f"{result.check}: {result.text}" for result in table.check() if not result.passed]
        assert [line for line in refused if line.startswith(("changelog_replays", "merge_engine_rules"))] == []
