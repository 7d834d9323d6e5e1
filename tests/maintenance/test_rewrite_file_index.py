"""Rewriting file indexes: old files get the indexes of today's options, and nothing else of the table changes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidFilter, InvalidOption, UnsupportedFeature
from lsm_core.maintenance.actions.rewrite_file_index import FileIndexReport, IndexFileItem
from lsm_core.maintenance.file_remedies import find_file_remedies
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import file_index, indexes_in
from tests.maintenance.faults import broken_at_steps
from tests.maintenance.tables import NOW, catalog, content, keyed, on_disk, rows
from tests.support.stores import live_files

BLOOM, BITMAP = "file-index.bloom-filter.columns", "file-index.bitmap.columns"


def reopened(table: Table, changes: Iterable[SchemaChange] = ()) -> Table:
    warehouse = Catalog(str(Path(table.store.root).parents[1]), clock=f"fixed:{NOW}")
    if changes:
        warehouse.alter_table(table.name, list(changes))
    return warehouse.table(table.name)


def indexed(table: Table, **options: str) -> Table:
    """Return the table with other options that name indexes."""
    names = {"bloom": BLOOM, "bitmap": BITMAP, "threshold": "file-index.in-manifest-threshold"}
    return reopened(table, [SchemaChange.set_option(names[key], value) for key, value in options.items()])


def rewrite(table: Table, **arguments: object) -> FileIndexReport:
    report = table.apply(table.plan_maintenance("rewrite_file_index", **arguments))
    assert isinstance(report, FileIndexReport)
    return report


def index_bytes(table: Table) -> list[bytes]:
    """Return the container of each live file's indexes."""
    containers = []
    for (partition, bucket), files in sorted(live_files(table.store).items()):
        for file in files:
            sides = [name for name in file.extra_files if name.endswith(".index")]
            path = table.store.data_path(partition, bucket, sides[0]) if sides else None
            assert (file.embedded_index is None) == bool(sides)
            containers.append(Path(path).read_bytes() if path else file.embedded_index)
    return containers


@pytest.mark.parametrize("threshold", ["1 b", "10 mb"], ids=["beside the file", "in the manifest"])
def test_old_files_get_the_bytes_that_a_writer_would_have_written(tmp_path: Path, threshold: str) -> None:
    settings = {BLOOM: "k,s", BITMAP: "v", "file-index.in-manifest-threshold": threshold}
    old = keyed(tmp_path, name="db.old", write_only="true")
    new = catalog(tmp_path).create_table(
        "db.new", Schema(rows([1]).schema, ["k"], [], {"bucket": "1", "write-only": "true", **settings})
    )
    for table in (old, new):
        table.write(rows(range(50)))
        table.write(rows(range(30, 90), v=5))
    before = content(old)
    old = indexed(old, bloom="k,s", bitmap="v", threshold=threshold)
    report = rewrite(old)
    old = reopened(old)
    assert (report.files, report.rows, report.commits) == (2, 110, 1)
    assert report.side_files == (2 if threshold == "1 b" else 0)
    assert content(old) == before and index_bytes(old) == index_bytes(new)
    assert not old.plan_maintenance("rewrite_file_index").items
    assert old.to_arrow(filter="s = 's42'").num_rows == 1
    assert rewrite(old).snapshot_id is None


def test_indexes_that_no_option_names_are_dropped_and_expiry_keeps_the_data_files(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, write_only="true")
    for dt in ("a", "b"):
        table.write(rows(range(40), dt=dt))
    before = content(table)
    table = indexed(table, bloom="k", bitmap="v", threshold="1 b")
    rewrite(table, partitions=[{"dt": "a"}])
    first = {name for name in on_disk(table) if name.endswith(".index")}
    assert len(first) == 1 and {name.split("/")[0] for name in first} == {"dt=a"}
    table = indexed(table, bitmap="s")
    (one, two) = table.plan_maintenance("rewrite_file_index").items_of(IndexFileItem)
    assert (one.missing, one.surplus) == ("bitmap(s)", "bitmap(v)") and two.surplus == ""
    rewrite(table)
    table = reopened(table)
    assert first < {name for name in on_disk(table) if name.endswith(".index")}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    table.apply(table.plan_maintenance("trash", now_ms=NOW + 30 * 86_400_000))
    table = reopened(table)
    assert len(snapshots.list_ids(table.store)) == 1 and content(table) == before
    assert not table.plan_maintenance("orphans", older_than_ms=NOW + 1, now_ms=NOW + 30 * 86_400_000).items
    assert not first & set(on_disk(table))


def test_a_damaged_or_lost_index_file_is_written_anew(tmp_path: Path) -> None:
    table = indexed(keyed(tmp_path, write_only="true"), bloom="k", threshold="1 b")
    for number in range(2):
        table.write(rows(range(number, number + 20)))
    one, two = sorted(Path(table.store.root).rglob("*.index"))
    one.write_bytes(b"damaged")
    two.unlink()
    (remedy,) = find_file_remedies(table.store, [one.name, two.name])
    assert remedy.command("db.t") == "dredge rewrite-file-index db.t" and not remedy.loss
    plan = table.plan_maintenance("rewrite_file_index")
    assert [item.missing for item in plan.items_of(IndexFileItem)] == ["bloom-filter(k)"] * 2
    table.apply(plan)
    table = reopened(table)
    assert table.to_arrow(filter="k = 7").num_rows == 1
    assert not table.plan_maintenance("rewrite_file_index").items


def test_columns_that_changed_since_are_declined_and_columns_added_since_are_left_out(tmp_path: Path) -> None:
    table = keyed(tmp_path, write_only="true")
    table.write(rows(range(10)))
    table = reopened(table, [SchemaChange.add_column("late", pa.string())])
    table.write(pa.table({"k": [50], "v": [1], "s": ["x"], "late": ["y"]}))
    table = indexed(table, bloom="late,s")
    plan = table.plan_maintenance("rewrite_file_index")
    wanted = {item.rows: item.missing for item in plan.items_of(IndexFileItem)}
    assert wanted == {10: "bloom-filter(s)", 1: "bloom-filter(late), bloom-filter(s)"}
    table.apply(plan)
    table = reopened(table, [SchemaChange.rename_column("s", "renamed")])
    table.write(pa.table({"k": [60], "v": [1], "renamed": ["z"], "late": ["w"]}))
    plan = table.plan_maintenance("rewrite_file_index")
    assert not plan.items
    assert "2 files" in {declined.subject for declined in plan.declined if "was 's'" in declined.text}
    assert table.to_arrow(filter="renamed = 's7'").num_rows == 1
    table.compact(full=True)
    (((partition, bucket), files),) = live_files(table.store).items()
    assert {indexes_in(table.store, partition, bucket, file) for file in files} == {
        frozenset({("late", "bloom-filter"), ("renamed", "bloom-filter")})
    }


def test_rows_with_deletion_vectors_and_append_tables(tmp_path: Path) -> None:
    fields = pa.schema([("k", pa.int64()), ("s", pa.string())])
    options = {"bucket": "-1", "write-only": "true", "deletion-vectors.enabled": "true"}
    table = catalog(tmp_path).create_table("db.a", Schema(fields, [], [], options))
    table.write(pa.table({"k": list(range(100)), "s": [f"s{number % 7}" for number in range(100)]}, fields))
    table.delete([("k", "<", 30)])
    before = content(table)
    table = indexed(table, bitmap="s", bloom="k")
    rewrite(table)
    table = reopened(table)
    assert content(table) == before
    assert table.to_arrow(filter="s = 's3'").num_rows == sum(number % 7 == 3 for number in range(30, 100))
    assert table.to_arrow(filter="k = 12").num_rows == 0
    (place, (file,)) = next(iter(live_files(table.store).items()))
    index = file_index(table.store, *place, file)
    assert index is not None and index.columns == {"s": ("bitmap",), "k": ("bloom-filter",)}


def test_wrong_input(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    with pytest.raises(InvalidOption, match=r"'file-index.bloom-filter.columns' of table db.t .*ALTER TABLE first"):
        table.plan_maintenance("rewrite_file_index")
    table = indexed(table, bloom="k")
    assert table.plan_maintenance("rewrite_file_index").declined[0].reason == "empty"
    table.write(rows([1], dt="a"))
    with pytest.raises(InvalidFilter, match="'v' is not a partition column"):
        table.plan_maintenance("rewrite_file_index", where="v = 1")
    table = indexed(table, bitmap="s")
    assert not table.plan_maintenance("rewrite_file_index", where="dt = 'b'").items
    plan = table.plan_maintenance("rewrite_file_index", where="dt = 'a'")
    table.drop_partitions([{"dt": "a"}])
    stale = table.apply(plan)
    assert stale.snapshot_id is None and stale.declined[-1].reason == "stale"


def test_a_fault_at_any_step_leaves_the_rows_and_a_retry_completes(tmp_path: Path) -> None:
    table = indexed(keyed(tmp_path / "template", write_only="true"), bloom="k", threshold="1 b")
    table = indexed(table, bitmap="v")
    reopened(table, [SchemaChange.remove_option(BLOOM), SchemaChange.remove_option(BITMAP)]).write(rows(range(9)))
    indexed(table, bloom="k", bitmap="v")

    def is_done(table: Table) -> bool:
        (((partition, bucket), files),) = live_files(table.store).items()
        return all(len(indexes_in(table.store, partition, bucket, file)) == 2 for file in files)

    broken_at_steps(tmp_path / "template", tmp_path / "copies", rewrite, is_done, least=5, stride=3)


def test_a_compaction_is_undone_after_its_files_got_indexes(tmp_path: Path) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(3):
        table.write(rows(range(number, number + 9), v=number))
    before = content(table)
    run = table.compact(full=True).run_id
    rewrite(indexed(table, bloom="k", threshold="1 b"))
    table = reopened(table)
    assert table.apply(table.plan_maintenance("undo", run_id=run)).snapshot_id
    table = reopened(table)
    assert content(table) == before and [item.sorted_runs for item in table.health()] == [3]


def test_row_tracking_is_refused(tmp_path: Path) -> None:
    options = {"bucket": "-1", "row-tracking.enabled": "true", BLOOM: "v"}
    table = catalog(tmp_path).create_table("db.r", Schema(pa.schema([("v", pa.int64())]), options=options))
    table.write(pa.table({"v": [1]}))
    with pytest.raises(UnsupportedFeature, match="new sequence numbers"):
        table.plan_maintenance("rewrite_file_index")


def test_large_tables_commit_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_core.maintenance.actions.rewrite_file_index._FILES_PER_COMMIT", 2)
    table = keyed(tmp_path, write_only="true")
    for number in range(5):
        table.write(rows([number]))
    report = rewrite(indexed(table, bloom="k"))
    assert (report.files, report.commits, report.snapshot_id) == (5, 3, 8)
    latest = table.latest_snapshot()
    assert latest is not None and len(manifests.live_entries(table.store, latest)) == 5
