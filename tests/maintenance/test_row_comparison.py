"""Rows that somebody read are compared with what the table's history says: engine by engine, and what is wrong is named by key and value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Schema, Table
from lsm_core.errors import ArithmeticOverflow, InvalidData, InvalidOption
from lsm_core.maintenance import CheckLimits, newest_compaction
from lsm_core.maintenance.checks.bucket_sample import read_sampled_rows
from lsm_core.maintenance.checks.expected_rows import (
    ExpectedRows,
    merge_by_rules,
    replay_changelog,
    rows_before,
)
from lsm_core.maintenance.checks.outcome import CheckInput
from lsm_core.maintenance.checks.row_comparison import ArrowRows, RowComparison, compare_keys, compare_rows
from lsm_core.metadata import snapshots
from tests.maintenance.tables import catalog, keyed, rows
from tests.maintenance.test_any_engine import Life, compact
from tests.maintenance.test_checks import KINDS, lived
from tests.support.samples import one_in

SOURCES: dict[str, Callable[[CheckInput], ExpectedRows]] = {
    "rules": merge_by_rules,
    "changelog": replay_changelog,
    "before": rows_before,
}


def question(table: Table, snapshot_id: int | None = None, **limits: Any) -> CheckInput:
    snapshot = snapshots.latest(table.store) if snapshot_id is None else snapshots.read(table.store, snapshot_id)
    assert snapshot is not None
    return CheckInput("rows", table.store, snapshot, CheckLimits(**limits))


def compared(asked: CheckInput, source: str, read: pa.Table | None = None) -> RowComparison:
    read = read_sampled_rows(asked)[0] if read is None else read
    return compare_rows(asked.store, SOURCES[source](asked), ArrowRows(asked.store, read))


JUDGED = {"first-row": (50, 70), "aggregation": (90, 50), "vectors": (50, 70), "full-compaction": (90, 50)}
"""Keys judged by the rules and by the changelog: those without versions that readers do not see, or that the changelog does not tell yet."""


@pytest.mark.parametrize("kind", one_in(4, KINDS))
def test_what_a_healthy_table_shows_is_what_its_history_says(tmp_path: Path, kind: str) -> None:
    table = lived(tmp_path, kind)
    asked = question(table)
    rules = compared(asked, "rules")
    by_rules, by_changelog = JUDGED.get(kind, (90, 90))
    assert rules == RowComparison("snapshot 1 and what 6 commits wrote since", by_rules, 0, [])
    if KINDS[kind].get("changelog_producer"):
        assert compared(asked, "changelog") == RowComparison(
            f"the changelog of snapshot 1 to {asked.snapshot.id}", by_changelog, 0, []
        )
    number = newest_compaction(table.store)
    assert number is not None
    assert compared(question(table, number), "before") == RowComparison(f"snapshot {number - 1}", 70, 0, [])
    read = table.to_arrow()
    assert compare_keys(table.store, ArrowRows(table.store, read)) == RowComparison("unique keys", read.num_rows, 0, [])


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table that no test changes."""
    return lived(tmp_path_factory.mktemp("aggregated"), "aggregation")


def doctored(read: pa.Table, how: str) -> pa.Table:
    """Rows as a wrong reader would give them; the key concerned is 3."""
    is_key = pc.equal(read.column("k"), 3)
    if how == "lost":
        return read.filter(pc.invert(is_key))
    if how == "twice":
        return pa.concat_tables([read, read.filter(is_key)])
    changed = pc.if_else(is_key, pa.scalar(-1, read.schema.field("v").type), read.column("v"))
    return read.set_column(read.schema.get_field_index("v"), "v", changed)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("how", "said"), [("lost", "the row is missing"), ("changed", "v is -1, expected "), ("twice", "there are 2 rows")]
)
def test_a_row_that_a_reader_gets_wrong_is_named(aggregated: Table, source: str, how: str, said: str) -> None:
    table = aggregated
    asked = question(table, newest_compaction(table.store) if source == "before" else None)
    found = compared(asked, source, doctored(read_sampled_rows(asked)[0], how))
    assert (found.ok, found.differing) == (False, 1)
    (difference,) = found.differences
    assert dict(difference.key) == {"k": "3"}
    assert str(difference).startswith("k=3: ")
    assert said in str(difference)
    keys = compare_keys(asked.store, ArrowRows(asked.store, doctored(table.to_arrow(), how)))
    assert [str(item) for item in keys.differences] == (
        ["k=3: there are 2 rows with this key"] if how == "twice" else []
    )


def test_a_deleted_row_that_comes_back_is_named_with_what_is_seen_of_it(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    table.write(rows(range(5), v=10))
    before = table.to_arrow()
    table.delete(("k", "=", 3))
    asked = question(table)
    found = compared(asked, "rules", before)
    assert [
        (difference.reason, difference.expected, difference.observed["v"])
        for difference in found.differences
        if difference.observed
    ] == [("the row should not be there", None, "13")]
    assert found.compared == 5


def test_fields_of_sequence_groups_are_recomputed_each_by_its_own_order(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            ("g1", pa.int64()),
            ("a", pa.int64()),
            ("g2", pa.int64()),
            ("b", pa.int64()),
        ]
    )
    options = {
        "merge-engine": "partial-update",
        "fields.g1.sequence-group": "a",
        "fields.g2.sequence-group": "b",
        "bucket": "1",
        "write-only": "true",
    }
    table = catalog(tmp_path).create_table("db.groups", Schema(schema, primary_keys=["k"], options=options))
    for g1, g2 in ((1, 9), (5, 2), (3, 8)):
        table.write(
            pa.table(
                {"k": [1, 2], "g1": [g1] * 2, "a": [g1 * 10] * 2, "g2": [g2] * 2, "b": [g2 * 10] * 2}, schema=schema
            )
        )
    read = table.to_arrow()
    assert read.to_pylist()[0] == {"k": 1, "g1": 5, "a": 50, "g2": 9, "b": 90}
    asked = question(table)
    assert compared(asked, "rules", read).ok
    newest = pa.table({"k": [1, 2], "g1": [3, 5], "a": [30, 50], "g2": [8, 9], "b": [80, 90]}, schema=schema)
    found = compared(asked, "rules", newest)  # a reader that took the newest row whole
    assert [str(difference) for difference in found.differences] == [
        "k=1: g1 is 3, expected 5; a is 30, expected 50; g2 is 8, expected 9; b is 80, expected 90"
    ]


def test_keys_of_partitions_and_values_that_numbers_stand_for_are_shown_as_people_read_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("day", pa.date32(), nullable=False),
            pa.field("at", pa.timestamp("us"), nullable=False),
            ("amount", pa.decimal128(10, 2)),
            ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    options = {"bucket": "1", "write-only": "true"}
    made = Schema(schema, primary_keys=["day", "at"], partition_keys=["day"], options=options)
    table = catalog(tmp_path).create_table("db.days", made)
    day, at = date(2024, 5, 1), datetime(2024, 5, 1, 12, 30)
    for amount in ("1.50", "2.50"):
        row = {"day": [day], "at": [at], "amount": [Decimal(amount)], "ratio": [float("nan")], "tags": [["a", "b"]]}
        table.write(pa.table(row, schema=schema))
    asked, read = question(table), table.to_arrow()
    assert compared(asked, "rules", read).ok
    wrong = read.set_column(2, "amount", pa.array([Decimal("9.00")], pa.decimal128(10, 2)))
    wrong = wrong.set_column(3, "ratio", pa.array([None], pa.float64()))
    (difference,) = compared(asked, "rules", wrong).differences
    assert str(difference) == (
        "day=2024-05-01, at=2024-05-01 12:30:00.000000: amount is 9.00, expected 2.50; ratio is null, expected nan"
    )
    lossy = compare_rows(table.store, merge_by_rules(asked), ArrowRows(table.store, wrong, nan_is_null={"ratio"}))
    assert "ratio" not in str(lossy.differences[0])


def test_differences_shown_are_bounded_and_rows_that_lack_a_column_are_refused(aggregated: Table) -> None:
    table = aggregated
    asked, read = question(table), table.to_arrow()
    found = compared(asked, "rules", read.slice(0, 0))
    assert (found.differing, len(found.differences)) == (90, 20)
    with pytest.raises(InvalidData, match=r"table db\.t, column 'v': the rows to compare lack this column"):
        compared(asked, "rules", read.drop_columns(["v"]))
    with pytest.raises(InvalidData, match="lack this column"):
        compare_keys(table.store, ArrowRows(table.store, read.drop_columns(["k"])))


def test_only_a_compaction_must_leave_rows_as_they_were(aggregated: Table) -> None:
    table = aggregated
    with pytest.raises(InvalidOption, match="snapshot 2 is APPEND, which changes rows"):
        rows_before(question(table, 2))
    with pytest.raises(InvalidOption, match=r"'before' of table db\.t cannot be 9"):
        rows_before(question(table), 9)


def test_a_sample_has_every_row_of_its_keys_and_wide_rows_make_it_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path, bucket="2", write_only="true")
    for step in range(3):
        table.write(rows(range(step, step + 400), v=1000 * step))
    asked = question(table, keys=50)
    read, keys, _ = read_sampled_rows(asked)
    assert keys == 50
    found = compared(asked, "rules", read)
    assert found.ok
    # the seed differs for each table: about 100 of 402 keys are drawn, and 45 or 155 are six standard deviations away
    assert 45 <= found.compared <= read.num_rows < 155
    monkeypatch.setattr("lsm_core.maintenance.checks.bucket_sample._MAX_BYTES", read.nbytes // 3)
    fewer, keys, _ = read_sampled_rows(asked)
    assert (keys < 50, fewer.num_rows < read.num_rows, fewer.num_rows > 0) == (True, True, True)
    assert compared(question(table, keys=keys), "rules", fewer).ok


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 100))])
def test_what_random_tables_of_every_engine_show_is_what_their_history_says(seed: int, tmp_path: Path) -> None:
    life, judged = Life(seed, tmp_path), 0
    with contextlib.suppress(ArithmeticOverflow, InvalidData):  # a table whose values cannot be merged cannot be read
        for _ in range(9):
            if life.rng.random() < 0.6 or not snapshots.latest_id(life.store):
                life.write()
                life.everything()
            else:
                compact(life, full=life.rng.random() < 0.25)
            table = Table(life.store)
            found = [compared(question(table), "rules")]
            compacted = newest_compaction(life.store)
            if compacted is not None:
                found.append(compared(question(table, compacted), "before"))
            assert [str(difference) for each in found for difference in each.differences] == [], life.store.options.raw
            judged += sum(each.compared for each in found)
    assert judged
