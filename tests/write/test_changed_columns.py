"""UPDATE, MERGE and DELETE of data-evolution tables: only the changed columns are written, for whole groups of row ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import Committer
from lsm_core.errors import CommitConflict, UnsupportedFeature
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.maintenance.actions.compact.execution import apply_compaction
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.metadata import manifests, snapshots
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner

FIELDS = pa.schema([("p", pa.int32()), ("k", pa.int32()), ("a", pa.int32()), ("s", pa.string())])
EVOLVED = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
VECTORS = {"deletion-vectors.enabled": "true"}


def make(tmp_path: Path, options: dict[str, str]) -> Table:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, options={**EVOLVED, **options}))
    table.write([{"p": 0, "k": k, "a": k, "s": str(k)} for k in range(3)])
    table.write([{"p": 0, "k": k, "a": k, "s": str(k)} for k in range(3, 5)])
    return table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make(tmp_path, {})


@pytest.fixture
def marked(tmp_path: Path) -> Table:
    """Return a table whose rows can be marked as deleted."""
    return make(tmp_path, VECTORS)


def rows(table: Table, *names: str) -> list[tuple[Any, ...]]:
    fresh = Catalog(Path(table.store.root).parent.parent).table("db.t")
    return [tuple(row.values()) for row in fresh.to_arrow(list(names or ("k", "a", "s", "_ROW_ID"))).to_pylist()]


def files(table: Table) -> list[DataFileMeta]:
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    return [entry.file for entry in table_to_entries(manifests.live_entries(table.store, snapshot))]


def data_files_on_disk(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).rglob("bucket-*/*")}


def sql(table: Table, text: str) -> None:
    catalog = Catalog(Path(table.store.root).parent.parent)
    StatementRunner(Session(catalog), LocalEngine()).run(text)


def test_an_update_writes_the_changed_columns_of_groups_with_matching_rows(table: Table) -> None:
    old = {file.file_name for file in files(table)}
    assert table.update([("k", "=", 1)], {"a": pc.add(pc.field("a"), 40), "s": "new"}) == 3
    assert rows(table) == [(0, 0, "0", 0), (1, 41, "new", 1), (2, 2, "2", 2), (3, 3, "3", 3), (4, 4, "4", 4)]
    (added,) = [file for file in files(table) if file.file_name not in old]
    assert old <= {file.file_name for file in files(table)}
    assert (added.write_cols, added.first_row_id, added.row_count) == (("a", "s"), 0, 3)
    assert (added.min_sequence_number, added.max_sequence_number) == (3, 3)
    assert rows(table, "_SEQUENCE_NUMBER") == [(3,)] * 3 + [(2,)] * 2
    assert table.update([("k", "=", 99)], {"a": 1}) is None
    assert all(check.passed for check in table.check())


def test_row_ids_and_old_versions_can_be_used_in_conditions(table: Table) -> None:
    table.update([("k", ">=", 0)], {"s": None})
    assert [row[2] for row in rows(table)] == [None] * 5
    before = table.copy({"scan.snapshot-id": "2"}).to_arrow(["s"])
    assert before.column("s").to_pylist() == ["0", "1", "2", "3", "4"]


def test_merge_updates_and_inserts_in_one_commit(table: Table) -> None:
    sql(table, "CREATE TABLE db.src (k INT, v INT)")
    sql(table, "INSERT INTO db.src VALUES (2, 20), (3, 30), (9, 90)")
    sql(
        table,
        "MERGE INTO db.t t USING db.src s ON t.k = s.k WHEN MATCHED AND s.v > 25 THEN UPDATE SET a = s.v, s = 'big' "
        "WHEN MATCHED THEN UPDATE SET a = s.v WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, s.v)",
    )
    newest = snapshots.latest(table.store)
    assert newest is not None
    assert newest.id == 3
    assert rows(table) == [
        *[(0, 0, "0", 0), (1, 1, "1", 1), (2, 20, "2", 2)],
        *[(3, 30, "big", 3), (4, 4, "4", 4), (9, 90, None, 5)],
    ]


def test_deletes_need_deletion_vectors(table: Table) -> None:
    with pytest.raises(UnsupportedFeature, match=r"deletion-vectors\.enabled"):
        table.delete([("k", "=", 1)])
    with pytest.raises(UnsupportedFeature, match=r"deletion-vectors\.enabled"):
        sql(table, "MERGE INTO db.t t USING db.t s ON t.k = s.k WHEN MATCHED THEN DELETE")
    assert len(rows(table)) == 5


def test_deleted_rows_stay_deleted_through_updates_and_compactions(marked: Table) -> None:
    marked.delete([("k", "=", 1)])
    marked.update([("a", ">=", 0)], {"s": "x"})
    marked.delete([("k", "=", 3)])
    merge = "MERGE INTO db.t t USING db.t s ON t.k = s.k WHEN MATCHED AND t.k = 4 THEN DELETE"
    sql(marked, f"{merge} WHEN MATCHED THEN UPDATE SET a = 7")
    expected = [(0, 7, "x", 0), (2, 7, "x", 2)]
    assert rows(marked) == expected
    run = marked.compact(full=True)
    assert (run.verification.level, len(files(marked))) == ("V2", 1)
    assert rows(marked) == expected
    marked.undo(run.run_id)
    assert rows(marked) == expected
    marked.compact(full=True)
    marked.delete([("k", ">=", 0)])
    assert rows(marked) == []
    assert all(check.passed for check in marked.check())


def interfere(monkeypatch: pytest.MonkeyPatch, table: Table, act: Callable[[], object], times: int = 1) -> None:
    """Let another writer act before each of the first ``times`` commits of a change of columns."""
    real, left = Committer.commit, [times]

    def commit(self: Committer, messages: Any, **given: Any) -> Any:
        if given.get("columns_from") is not None and left[0]:
            left[0] -= 1
            with monkeypatch.context() as patched:
                patched.setattr(Committer, "commit", real)
                act()
        return real(self, messages, **given)

    monkeypatch.setattr(Committer, "commit", commit)


def test_a_change_is_computed_again_if_another_commit_changed_the_same_rows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interfere(monkeypatch, table, lambda: table.update([("k", "=", 2)], {"a": 10}))
    table.update([("k", "<", 3)], {"a": pc.add(pc.field("a"), 1)})
    assert [row[:2] for row in rows(table)] == [(0, 1), (1, 2), (2, 11), (3, 3), (4, 4)]
    named = {file.file_name for file in files(table)}
    assert data_files_on_disk(table) == named  # the files of the first attempt are deleted


def test_a_change_is_computed_again_if_a_compaction_joined_its_rows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    interfere(monkeypatch, table, lambda: table.compact(full=True))
    table.update([("k", "=", 1)], {"s": "new"})
    assert [(file.first_row_id, file.row_count) for file in files(table)] == [(0, 5), (0, 5)]
    assert [row[2] for row in rows(table)] == ["0", "new", "2", "3", "4"]


def test_appended_rows_are_no_conflict_and_lost_races_end(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    interfere(monkeypatch, table, lambda: table.write([{"k": 9, "a": 9}]))
    table.update([("k", "=", 1)], {"s": "new"})
    assert [row[0] for row in rows(table)] == [0, 1, 2, 3, 4, 9]
    interfere(monkeypatch, table, lambda: table.update([("k", "=", 0)], {"a": 1}), times=9)
    before = data_files_on_disk(table)
    with pytest.raises(CommitConflict, match="changed columns of the same rows"):
        table.update([("k", "=", 1)], {"s": "newer"})
    assert len(data_files_on_disk(table)) == len(before) + 5  # those of the other writer only


def test_a_compaction_is_stale_if_columns_were_added_meanwhile(table: Table) -> None:
    plan = plan_compaction(table.store, full=True)
    table.update([("k", "=", 1)], {"s": "new"})
    outcome = apply_compaction(table.store, plan)
    assert "has further columns of planned row ids" in outcome.report.declined[0].text
    assert [row[2] for row in rows(table)] == ["0", "new", "2", "3", "4"]


def test_a_compaction_does_not_commit_over_columns_added_while_it_ran(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = Committer.commit, []

    def commit(self: Committer, messages: Any, **given: Any) -> Any:
        if given.get("properties") and not done:  # of the compaction
            done.append(1)
            table.update([("k", "=", 1)], {"s": "new"})
        return real(self, messages, **given)

    monkeypatch.setattr(Committer, "commit", commit)
    report = table.compact(full=True)
    assert report.snapshot_id is None
    assert "another commit took its inputs" in report.declined[0].text
    assert [row[2] for row in rows(table)] == ["0", "new", "2", "3", "4"]
    assert data_files_on_disk(table) == {file.file_name for file in files(table)}


def test_a_failed_commit_leaves_no_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before = data_files_on_disk(table)

    def fail(*_: object, **__: object) -> None:
        raise CommitConflict("other", reason="the disk is gone")

    monkeypatch.setattr(Committer, "commit", fail)
    with pytest.raises(CommitConflict, match="the disk is gone"):
        table.update([("k", "=", 1)], {"s": "new"})
    assert data_files_on_disk(table) == before
