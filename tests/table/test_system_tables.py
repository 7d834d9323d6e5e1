"""System tables: Java's columns, filters, projections, limits and versions on each, and one clear error where they make no sense."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange, errors
from lsm_core.format.binary_row import encode_rows
from lsm_core.metadata import manifests
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner
from lsm_core.table.system import GLOBAL_TABLES, SYSTEM_TABLES
from lsm_core.table.system.entry_texts import _decoded
from lsm_core.types import parse
from tests.maintenance.tables import NOW, catalog, keyed, rows
from tests.support.data import unpack_golden

_NOW = dt.datetime.fromtimestamp(NOW / 1000, dt.UTC).replace(tzinfo=None)


def made(tmp_path: Path) -> None:
    """Four snapshots: two partitions, an update, a delete, a full compaction of one of them."""
    table = keyed(tmp_path, partitioned=True, bucket="2")
    table.write(rows(range(20), dt="a"))
    table.write(rows(range(10), v=100, dt="b"))
    table.write(rows([1, 2], dt="a"), row_kinds=pa.array(["+U", "-D"]))
    table.compact(full=True, partitions=[{"dt": "b"}])


def view(tmp_path: Path, name: str, **reading: Any) -> list[dict[str, Any]]:
    found = catalog(tmp_path).table(name if "." in name else f"db.t${name}").to_arrow(**reading)
    return list(found.to_pylist())


@pytest.mark.parametrize("name", sorted(SYSTEM_TABLES))
def test_every_system_table_reads_in_parts_and_by_columns_filter_and_limit(tmp_path: Path, name: str) -> None:
    tracked = {"row-tracking.enabled": "true"} if name == "row_tracking" else {}
    if tracked:  # append tables only have row ids
        schema = Schema(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())]), options=tracked)
        catalog(tmp_path).create_table("db.t", schema).write(rows(range(20)))
    else:
        made(tmp_path)
    table = catalog(tmp_path).table(f"db.t${name}")
    whole = table.to_arrow()
    assert whole.schema.names == list(table.schema.field_names)
    assert whole.schema.equals(table.schema.arrow_schema)
    assert pa.Table.from_batches(table.to_batches(), whole.schema).num_rows == whole.num_rows
    first = whole.column_names[0]
    assert table.to_arrow(columns=[first]).equals(whole.select([first]))
    assert table.to_arrow(limit=1).num_rows == min(1, whole.num_rows)
    assert table.to_arrow(limit=0).num_rows == 0
    last = whole.column_names[-1]
    kept = table.to_arrow(columns=[first], filter=[(last, "is null")] if name != "binlog" else pc.field(last).is_null())
    assert kept.num_rows == whole.column(last).null_count
    with pytest.raises(errors.ColumnNotFound, match="'nope'"):
        table.to_arrow(columns=["nope"])
    with pytest.raises(errors.InvalidFilter, match="twice"):
        table.to_arrow(columns=[first, first])
    with pytest.raises(errors.InvalidOption, match="limit"):
        table.to_batches(limit=-1)
    empty = catalog(tmp_path).create_table("db.e", Schema(pa.schema([("a", pa.int8())]), options=tracked))
    assert catalog(tmp_path).table(f"{empty.name}${name}").to_arrow().schema.names is not None


def test_files_tell_places_keys_and_statistics(tmp_path: Path) -> None:
    made(tmp_path)
    files = view(tmp_path, "files", filter=[("partition", "=", "{b}"), ("bucket", "=", 0)])
    assert [file["level"] for file in files] == [5]
    (file,) = files
    assert str(file["min_key"]).startswith("[") and file["file_source"] == "APPEND" and file["creation_time"] == _NOW
    assert str(file["min_value_stats"]).startswith("{dt=b, k=") and str(file["null_value_counts"]).startswith("{dt=0, ")
    assert file["first_row_id"] is None and file["write_cols"] is None and file["deleteRowCount"] == 0
    assert {f["partition"] for f in view(tmp_path, "files", snapshot_id=1)} == {"{a}"}
    ranges = view(tmp_path, "file_key_ranges")
    assert [f["min_key"] for f in ranges] == [f["min_key"] for f in view(tmp_path, "files")]


def test_a_filter_on_places_keeps_other_entries_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    kept: list[int] = []
    real = manifests.live_entries

    def spy(*args: object, **named: object) -> pa.Table:
        found = real(*args, **named)  # type: ignore[arg-type]
        kept.append(found.num_rows)
        return found

    monkeypatch.setattr(manifests, "live_entries", spy)
    everything = view(tmp_path, "files")
    for places in (
        [("partition", "in", ["{b}"])],
        [("bucket", "=", 1), ("level", "<", 5), ("record_count", ">", 0)],
        [("partition", "starts with", "{a"), ("level", "is not null")],
    ):
        found = view(tmp_path, "files", filter=places)
        assert 0 < kept[-1] == len(found) < len(everything)
    view(tmp_path, "files", filter=[[("partition", "=", "{b}")], [("level", "=", 0)]])
    assert kept[-1] == len(everything)  # or-ed: every file is asked


def test_partitions_count_buckets_and_deleted_rows(tmp_path: Path) -> None:
    schema = Schema(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("dt", pa.string())]), partition_keys=["dt"])
    options = {"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"}
    table = catalog(tmp_path).create_table("db.t", replace(schema, options=options))
    for dt_value in ("a", "b"):
        table.write(pa.table({"k": list(range(9)), "v": list(range(9)), "dt": [dt_value] * 9}))
    table.delete("dt = 'a' AND k < 4")
    sql = "CALL sys.rescale(table => 'db.t', bucket_num => 3, partitions => 'dt=b')"
    StatementRunner(Session(catalog(tmp_path)), LocalEngine()).run(sql)
    shown = ["partition", "total_buckets", "done", "deleted_record_count"]
    assert [list(row.values()) for row in view(tmp_path, "partitions", columns=shown)] == [
        ["dt=a", 2, False, 4],
        ["dt=b", 3, False, 0],
    ]
    assert view(tmp_path, "partitions", filter=[("deleted_record_count", ">", 0)], columns=["partition"]) == [
        {"partition": "dt=a"}
    ]


def test_file_indexes_are_listed_with_their_place_and_size(tmp_path: Path) -> None:
    options = {"file-index.bitmap.columns": "v,s", "file-index.in-manifest-threshold": "300 b"}
    fields = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    table = catalog(tmp_path).create_table("db.t", Schema(fields, options=options))
    table.write(pa.table({"k": [1], "v": [2], "s": ["x"]}))
    table.write(pa.table({"k": range(99), "v": range(99), "s": [f"{n}" for n in range(99)]}))
    files = {file["file_path"]: file for file in view(tmp_path, "files")}
    indexes = view(tmp_path, "file_indexes")
    assert len(indexes) == 4
    for index in indexes:
        assert index["record_count"] == files[index["file_path"]]["record_count"]
        assert (index["index_type"], index["is_empty"]) == ("bitmap", False)
        place = index["index_file_path"]
        assert index["storage_type"] == ("EMBEDDED" if place is None else "FILE")
        if place is not None:
            assert Path(place).stat().st_size == index["index_container_size_in_bytes"]
    assert {index["storage_type"] for index in indexes} == {"EMBEDDED", "FILE"}
    assert all(0 < index["index_size_in_bytes"] < index["index_container_size_in_bytes"] for index in indexes)
    Path(next(index["index_file_path"] for index in indexes if index["index_file_path"])).unlink()
    with pytest.raises(errors.CorruptFile, match="missing"):
        view(tmp_path, "file_indexes")


def test_partitions_and_buckets_add_up_what_is_live(tmp_path: Path) -> None:
    made(tmp_path)
    files = view(tmp_path, "files")
    partitions = view(tmp_path, "partitions")
    assert [p["partition"] for p in partitions] == ["dt=a", "dt=b"]
    for bounds, text in zip(partitions, ("{a}", "{b}"), strict=True):
        mine = [f for f in files if f["partition"] == text]
        assert bounds["record_count"] == sum(f["record_count"] for f in mine)
        assert bounds["file_size_in_bytes"] == sum(f["file_size_in_bytes"] for f in mine)
        assert (bounds["file_count"], bounds["last_update_time"]) == (len(mine), _NOW)
    buckets = view(tmp_path, "buckets")
    assert [(b["partition"], b["bucket"]) for b in buckets] == [("{a}", 0), ("{a}", 1), ("{b}", 0), ("{b}", 1)]
    assert sum(b["file_count"] for b in buckets) == len(files)
    catalog(tmp_path).table("db.t").write(rows([], dt="a").slice(0, 0), overwrite={"dt": "a"})
    assert [p["partition"] for p in view(tmp_path, "partitions")] == ["dt=b"]
    assert len(view(tmp_path, "partitions", snapshot_id=4)) == 2


def test_the_audit_log_shows_kinds_and_deleted_rows(tmp_path: Path) -> None:
    made(tmp_path)
    log = view(tmp_path, "audit_log", columns=["rowkind", "k"], filter=[("dt", "=", "a"), ("k", "<", 4)])
    assert sorted((row["k"], row["rowkind"]) for row in log) == [(0, "+I"), (1, "+U"), (2, "-D"), (3, "+I")]
    assert view(tmp_path, "audit_log", columns=["k"], filter=[("rowkind", "=", "-D")]) == [{"k": 2}]
    either = view(tmp_path, "audit_log", filter=[[("rowkind", "=", "-D")], [("k", "=", 5), ("dt", "=", "a")]])
    assert sorted(row["k"] for row in either) == [2, 5]
    by_expression = view(tmp_path, "audit_log", filter=(pc.field("rowkind") != "+I") & (pc.field("k") > 1))
    assert [row["k"] for row in by_expression] == [2]
    before = view(tmp_path, "audit_log", filter=[("rowkind", "!=", "+I")], snapshot_id=1)
    assert before == []
    assert len(view(tmp_path, "audit_log", columns=["rowkind"])) == 30
    pairs = view(tmp_path, "binlog", filter=[("rowkind", "=", "-D")])
    assert [(row["rowkind"], row["k"]) for row in pairs] == [("-D", [2])]


def test_the_audit_log_of_an_append_table_holds_inserts(tmp_path: Path) -> None:
    table = catalog(tmp_path).create_table("db.log", Schema(pa.schema([("a", pa.int64())]), options={"bucket": "-1"}))
    table.write(pa.table({"a": [1, 2, 3]}))
    log = view(tmp_path, "db.log$audit_log", filter=[("a", ">", 1)])
    assert log == [{"rowkind": "+I", "a": 2}, {"rowkind": "+I", "a": 3}]
    assert [row["a"] for row in view(tmp_path, "db.log$ro")] == [1, 2, 3]


def test_the_read_optimised_view_shows_the_top_level_alone(tmp_path: Path) -> None:
    made(tmp_path)
    assert {row["dt"] for row in view(tmp_path, "ro")} == {"b"}
    assert len(view(tmp_path, "ro", filter=[("k", "<", 4)])) == 4
    assert view(tmp_path, "ro", snapshot_id=3) == []
    before = catalog(tmp_path).table("db.t").to_arrow().sort_by([("dt", "ascending"), ("k", "ascending")])
    catalog(tmp_path).table("db.t").compact(full=True)
    after = catalog(tmp_path).table("db.t$ro").to_arrow().sort_by([("dt", "ascending"), ("k", "ascending")])
    assert after.equals(before)


def test_history_tags_and_definition(tmp_path: Path) -> None:
    made(tmp_path)
    root = tmp_path / "wh" / "db.db" / "t"
    snapshot = json.loads((root / "snapshot" / "snapshot-2").read_text())
    (root / "tag").mkdir()
    (root / "tag" / "tag-plain").write_text(json.dumps(snapshot))
    kept = {"tagCreateTime": [2024, 1, 2, 3, 4, 5, 6_000_000], "tagTimeRetained": 5400.0}
    (root / "tag" / "tag-kept").write_text(json.dumps({**snapshot, **kept}))
    tags = view(tmp_path, "tags")
    assert [(t["tag_name"], t["time_retained"], t["record_count"]) for t in tags] == [
        ("kept", "PT1H30M", 30),
        ("plain", None, 30),
    ]
    assert tags[0]["create_time"] == dt.datetime(2024, 1, 2, 3, 4, 5, 6000)
    assert {f["partition"] for f in view(tmp_path, "files", tag="plain")} == {"{a}", "{b}"}
    assert [s["snapshot_id"] for s in view(tmp_path, "snapshots")] == [1, 2, 3, 4]
    assert [s["snapshot_id"] for s in view(tmp_path, "snapshots", snapshot_id=3)] == [3]
    catalog(tmp_path).alter_table(
        "db.t",
        [SchemaChange.set_option("num-levels", "4"), SchemaChange.set_option("fields.v.aggregate-function", "sum")],
    )
    assert [s["schema_id"] for s in view(tmp_path, "schemas")] == [0, 1]
    assert json.loads(str(view(tmp_path, "schemas")[0]["fields"]))[0] == {
        "id": 0,
        "name": "k",
        "type": "BIGINT NOT NULL",
    }
    assert {"key": "num-levels", "value": "4"} in view(tmp_path, "options")
    assert {"key": "num-levels", "value": "4"} not in view(tmp_path, "options", snapshot_id=4)
    functions = {row["field_name"]: row["function"] for row in view(tmp_path, "aggregation_fields")}
    assert functions == {"k": "[]", "v": "[sum]", "s": "[]", "dt": "[]"}
    assert len(view(tmp_path, "manifests")) == 4
    assert {m["min_partition_stats"] for m in view(tmp_path, "manifests", snapshot_id=1)} == {"{a}"}


@pytest.mark.parametrize("name", ["tags", "branches", "consumers", "schemas"])
def test_what_has_no_versions_says_so(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    with pytest.raises(errors.InvalidOption, match=r"'snapshot_id' of table db\.t .* no versions"):
        view(tmp_path, name, snapshot_id=1)
    with pytest.raises(errors.InvalidOption, match="no versions"):
        view(tmp_path, "sys.tables", tag="x")


@pytest.mark.parametrize("verb", ["compact", "write", "new_write", "health", "apply", "plan_scan", "lookup"])
def test_verbs_that_system_tables_lack_are_refused_by_name(tmp_path: Path, verb: str) -> None:
    made(tmp_path)
    found = catalog(tmp_path)
    for name in ("db.t$ro", "db.t$files", "sys.tables"):
        with pytest.raises(errors.UnsupportedFeature, match=f"{verb} of a system table.*table {re.escape(name)}"):
            getattr(found.table(name), verb)()
        assert not hasattr(found.table(name), "nothing")


def test_unknown_system_tables_and_versions_are_named(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(errors.UnsupportedFeature, match=r"\$nope; known ones: .*\$files.*\$audit_log"):
        view(tmp_path, "nope")
    with pytest.raises(errors.TableNotFound, match=r"sys\.nope.*sys\.all_table_options"):
        view(tmp_path, "sys.nope")
    for name in ("files", "manifests", "partitions", "buckets", "audit_log", "ro"):
        with pytest.raises(errors.SnapshotNotFound, match="99"):
            view(tmp_path, name, snapshot_id=99)


def test_the_catalog_lists_its_tables_options_and_partitions(tmp_path: Path) -> None:
    made(tmp_path)
    catalog(tmp_path).create_table("db.log", Schema(pa.schema([("a", pa.int64())]), options={"bucket": "-1"}))
    tables = view(tmp_path, "sys.tables")
    assert [(t["table_name"], t["table_type"], t["partitioned"], t["primary_key"]) for t in tables] == [
        ("log", "table", False, False),
        ("t", "table", True, True),
    ]
    options = view(tmp_path, "sys.all_table_options", filter=[("table_name", "=", "t")], columns=["key", "value"])
    assert {"key": "bucket", "value": "2"} in options
    assert {"key": "path", "value": catalog(tmp_path).table("db.t").store.root} in options
    assert [o["key"] for o in view(tmp_path, "sys.catalog_options")] == ["warehouse"]
    partitions = view(tmp_path, "sys.partitions")
    assert [(p["partition_name"], p["last_file_creation_time"]) for p in partitions] == [("dt=a", NOW), ("dt=b", NOW)]
    assert set(GLOBAL_TABLES) == {"tables", "all_table_options", "catalog_options", "partitions"}
    assert len(view(tmp_path, "sys.all_table_options", limit=2)) == 2


def test_branches_have_system_tables_of_their_own(tmp_path: Path) -> None:
    shutil.copytree(unpack_golden("tags_branches", tmp_path / "golden").parent.parent, tmp_path / "wh")
    assert [b["branch_name"] for b in view(tmp_path, "branches")] == ["b1", "empty"]
    main, branch = view(tmp_path, "files"), view(tmp_path, "db.t$branch_b1$files")
    assert branch and [f["file_path"] for f in branch] != [f["file_path"] for f in main]
    assert view(tmp_path, "db.t$branch_empty$files") == []
    assert [s["schema_id"] for s in view(tmp_path, "db.t$branch_empty$schemas")] == [0]


def test_statistics_of_older_schemas_are_shown_in_today_s_columns(tmp_path: Path) -> None:
    warehouse = unpack_golden("evolve_pk", tmp_path).parent.parent
    (old,) = view_of(warehouse, "files", filter=[("schema_id", "=", 1), ("bucket", "=", 0)])
    # b was renamed to b2, c dropped and added again, d added, a widened; nested columns have no statistics.
    assert old["null_value_counts"] == "{a=0, b2=0, c=8, d=4, k=0, r=null}"
    assert old["min_value_stats"] == "{a=4, b2=x, c=null, d=19782, k=1, r=null}"
    assert old["max_key"] == "[12]"


def test_bounds_beyond_nanoseconds_are_shown_to_the_microsecond() -> None:
    kinds = [parse("TIMESTAMP(9)"), parse("INT")]
    moments = pa.array([10**15, 32_503_680_000_000_001, None], pa.int64()).cast(pa.timestamp("us"))  # 2001, 3000
    rows_of = encode_rows([moments, pa.array([1, 2, 3], pa.int32())], [parse("TIMESTAMP(6)"), kinds[1]])
    shown = [column.text().to_pylist() for column in _decoded(rows_of, kinds)]
    assert shown == [["2001-09-09T01:46:40", "3000-01-01T00:00:00.000001", None], ["1", "2", "3"]]


def test_statistics_consumers_and_indexes_of_a_java_table(tmp_path: Path) -> None:
    for name in ("stream_commits", "expired", "dv_pk"):
        unpack_golden(name, tmp_path / name)
    stream, expired, vectors = (tmp_path / n / "warehouse" for n in ("stream_commits", "expired", "dv_pk"))
    (statistics,) = view_of(stream, "statistics")
    assert (statistics["mergedRecordCount"], statistics["snapshot_id"]) == (10, 7)
    assert json.loads(str(statistics["colstat"]))["s"] == {"colId": 2, "distinctCount": 4, "avgLen": 5, "maxLen": 200}
    assert view_of(stream, "statistics", snapshot_id=1) == []
    assert view_of(expired, "consumers") == [{"consumer_id": "c1", "next_snapshot_id": 9}]
    indexes = view_of(vectors, "table_indexes", filter=[("row_count", ">", 0)])
    assert [(i["index_type"], i["bucket"], i["dv_ranges"][0]["_CARDINALITY"]) for i in indexes] == [
        ("DELETION_VECTORS", 1, 2)
    ]


def view_of(warehouse: Path, name: str, **reading: Any) -> list[dict[str, Any]]:
    return list(Catalog(warehouse).table(f"db.t${name}").to_arrow(**reading).to_pylist())


@pytest.mark.parametrize("name", ["db.t", "db.t$snapshots", "db.t$audit_log"])
def test_texts_come_as_dictionaries_where_asked(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    table = catalog(tmp_path).table(name)
    found = table.to_arrow(dictionaries=True)
    texts = [field.name for field in table.schema.arrow_schema if field.type == pa.string()]
    assert {found.schema.field(text).type for text in texts} == {pa.dictionary(pa.int32(), pa.string())}
    assert found.to_pylist() == table.to_arrow().to_pylist()
    batches = list(table.to_batches(dictionaries=True))
    assert [row for batch in batches for row in batch.to_pylist()] == found.to_pylist()
