"""Copying a table: the copy says the same, stands on its own, and an interrupted copy is continued."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.errors import (
    DredgeError,
    InvalidData,
    InvalidFilter,
    InvalidOption,
    PlanStale,
    TableExists,
    UnsupportedFeature,
)
from lsm_core.maintenance.actions.copy_table import CopyReport
from lsm_core.sql.procedures import prepare_call
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.table import Catalog, Schema, SchemaChange, Table
from tests.maintenance.tables import content, on_disk, with_io

_FIELDS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
)

KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "keyed": (["dt", "k"], {"bucket": "2"}),
    "vectors": (["dt", "k"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "dynamic": (["dt", "k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}),
    "postponed": (["dt", "k"], {"bucket": "-2"}),
    "append": ([], {"bucket": "-1", "row-tracking.enabled": "true"}),
    "append with vectors and indexes": (
        [],
        {
            "bucket": "-1",
            "deletion-vectors.enabled": "true",
            "file-index.bloom-filter.columns": "k",
            "file-index.in-manifest-threshold": "1 b",
        },
    ),
    "ordered by snapshot": (["dt", "k"], {"bucket": "1", "sequence.snapshot-ordering": "true"}),
    "sums": (["dt", "k"], {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}),
}


def _warehouse(tmp_path: Path, kind: str = "keyed", **more: str) -> Catalog:
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    keys, options = KINDS[kind]
    catalog.create_table("db.t", Schema(_FIELDS, keys, ["dt"], {"write-only": "true", **options, **more}))
    for number in range(3):
        _write(catalog.table("db.t"), range(number * 30, number * 30 + 60))
    return catalog


def _write(table: Table, keys: range) -> None:
    values = {"dt": [f"d{key % 3}" for key in keys], "k": list(keys), "v": [f"v{key}" for key in keys]}
    table.write(pa.table(values, _FIELDS), compact=False)


def _copy(table: Table, target: str, **arguments: Any) -> CopyReport:
    report = table.apply(table.plan_maintenance("copy_table", target=target, **arguments))
    assert isinstance(report, CopyReport)
    return report


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_has_the_rows_and_goes_on_by_itself(tmp_path: Path, kind: str) -> None:
    catalog = _warehouse(tmp_path, kind)
    table = catalog.table("db.t")
    if kind in ("keyed", "vectors"):
        table.compact(full=True)
        _write(table, range(5))
    if "append" in kind:
        table.delete("k < 7")
    before, files = content(table), on_disk(table, without=("dredge",))
    report = _copy(table, "db.copied")
    copied = catalog.table("db.copied")
    assert report.files and not report.kept and report.verification == "V1"
    assert content(copied) == before == content(table)
    assert on_disk(table, without=("dredge",)) == files
    assert [result.name for result in copied.check() if not result.passed] == [
        result.name for result in table.check() if not result.passed
    ]
    shutil.rmtree(table.store.root)  # the copy shares no file
    copied = catalog.table("db.copied")
    assert content(copied) == before
    _write(copied, range(200, 220))
    copied.compact(full=True)
    copied = catalog.table("db.copied")
    if kind != "postponed":
        assert copied.to_arrow(filter="k >= 200").num_rows == 20
    if kind == "ordered by snapshot":  # a new version wins over all copied ones
        copied.write(pa.table({"dt": ["d0"], "k": [3], "v": ["new"]}, _FIELDS), compact=False)
        assert catalog.table("db.copied").to_arrow(filter="k = 3").column("v").to_pylist() == ["new"]
        before = [row for row in before if row[1] != 3]
    copied.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
    assert {row[1] for row in before} <= {row[1] for row in content(catalog.table("db.copied"))}


def test_partitions_other_warehouses_and_schema_changes(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    catalog.alter_table("db.t", [SchemaChange.add_column("late", pa.int32()), SchemaChange.rename_column("v", "w")])
    table = catalog.table("db.t")
    other = tmp_path / "backup"
    report = _copy(table, "saved.t", target_warehouse=str(other), where="dt <> 'd1'")
    copied = Catalog(other).table("saved.t")
    expected = [row for row in content(table) if row[0] != "d1"]
    assert content(copied) == expected and report.root == str(other / "saved.db" / "t")
    assert copied.schema == table.schema
    again = _copy(table, "saved.t", target_warehouse=str(other), where="dt <> 'd1'")
    assert not again.changed
    assert _copy(table, "saved.u", target_warehouse=str(other), partitions=[{"dt": "d1"}]).rows == 60


def test_an_interrupted_copy_is_continued(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    counting = FaultyFileIO(LocalFileIO())
    _copy(with_io(table, counting), "db.first")
    interrupted = 0
    for step in range(5, counting.steps, 11):
        target = f"db.at{step}"
        for mode in ("before", "after"):
            try:
                _copy(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)), target)
            except (OSError, DredgeError):
                interrupted += 1
        report = _copy(table, target)
        copied = catalog.table(target)
        assert content(copied) == content(table), (step, report)
        assert not copied.plan_maintenance("remove_unexisting_files").items
    assert interrupted > 8


def test_a_half_copy_is_no_table_and_a_relative_target_stays_where_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    with monkeypatch.context() as patch:
        patch.setattr("lsm_core.maintenance.actions.copy_table._copy_schemas", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            _copy(table, "db.half")
    assert "half" not in catalog.list_tables("db")
    assert _copy(table, "db.half").kept and content(catalog.table("db.half")) == content(table)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    plan = table.plan_maintenance("copy_table", target="db.r", target_warehouse="relative")
    monkeypatch.chdir(tmp_path / "two")
    assert table.apply(plan).root == str(tmp_path / "one" / "relative" / "db.db" / "r")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_only_missing_files_are_copied_again(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    whole = _copy(table, "db.a")
    root = Path(whole.root)
    shutil.rmtree(root / "snapshot")
    files = sorted(root.rglob("data-*"))
    files[0].write_bytes(b"cut")
    files[1].unlink()
    report = _copy(table, "db.a")
    assert (report.files, report.kept) == (2, whole.files - 2)
    assert content(catalog.table("db.a")) == content(table)


def test_wrong_input(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    for target in ("t", "db.", ".t", "db.t", "db.a/b", "db..", "../x.t", "db.t$branch_a", "sys.t"):
        with pytest.raises((InvalidOption, InvalidData), match=r"'target'|is not a plain name"):
            table.plan_maintenance("copy_table", target=target)
    with pytest.raises(InvalidFilter, match="not a partition column"):
        table.plan_maintenance("copy_table", target="db.u", where="k = 1")
    with pytest.raises(InvalidOption, match="no value together with partitions"):
        table.plan_maintenance("copy_table", target="db.u", where="dt = 'd0'", partitions=[{"dt": "d1"}])
    for inner in ("", "/dt=d0", "/manifest"):
        with pytest.raises(InvalidOption, match="a folder outside of the copied table's"):
            table.plan_maintenance("copy_table", target="a.b", target_warehouse=table.store.root + inner)
    other = catalog.create_table("db.other", Schema(_FIELDS))
    with pytest.raises(TableExists, match="another definition"):
        table.plan_maintenance("copy_table", target="db.other")
    _write(other, range(3))
    with pytest.raises(TableExists, match="has snapshots"):
        table.plan_maintenance("copy_table", target="db.other")
    plan = table.plan_maintenance("copy_table", target="db.u")
    _write(table, range(3))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
    with pytest.raises(PlanStale, match="tag a snapshot"):
        table.apply(plan)
    catalog.create_table("db.outside", Schema(_FIELDS))
    schema = tmp_path / "warehouse" / "db.db" / "outside" / "schema" / "schema-0"
    definition = json.loads(schema.read_text())
    definition["options"]["data-file.external-paths"] = f"file://{tmp_path}/outside"
    schema.write_text(json.dumps(definition))
    outside = catalog.table("db.outside")
    with pytest.raises(UnsupportedFeature, match="external-paths"):
        outside.plan_maintenance("copy_table", target="db.v")


def test_the_procedures(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    rows = content(catalog.table("db.t"))
    backup = tmp_path / "backup"
    prepare_call(catalog, "CALL sys.copy('db.t', 'db.c1', \"dt = 'd0'\")").apply()
    assert content(catalog.table("db.c1")) == [row for row in rows if row[0] == "d0"]
    call = f"CALL sys.copy_files(database => 'db', target_warehouse => '{backup}', target_database => 'kept')"
    prepare_call(catalog, call).apply()
    assert content(Catalog(backup).table("kept.t")) == rows
    assert Catalog(backup).list_tables("kept") == ["c1", "t"]
    call = "CALL sys.clone(database => 'db', `table` => 't', target_database => 'db', target_table => 'c2')"
    assert "db.c2 has the rows of snapshot 3 of db.t" in prepare_call(catalog, call).apply().lines[0]
    for wrong, message in {
        "clone(database => 'db', table => 't', clone_from => 'hive')": "Hive",
        "clone(database => 'db', meta_only => true)": "LIKE",
    }.items():
        with pytest.raises(UnsupportedFeature, match=message):
            prepare_call(catalog, f"CALL sys.{wrong}").apply()
    for wrong, message in {
        "copy_files(warehouse => '/elsewhere', target_warehouse => '/x')": "the opened warehouse",
        "clone(table => 't')": "the database of the table",
        "clone(database => 'db', target_table => 'x')": "without `table`",
        "clone(database => 'db', table => 't', target_catalog_conf => 'warehouze=/x')": "'warehouse=ADDRESS' alone",
    }.items():
        with pytest.raises(InvalidOption, match=message):
            prepare_call(catalog, f"CALL sys.{wrong}").apply()
