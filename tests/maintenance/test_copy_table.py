"""Copying a table: the copy says the same, stands on its own, and an interrupted copy is continued."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.cli.app import run
from lsm_core.errors import (
    CorruptFile,
    DredgeError,
    InvalidData,
    InvalidFilter,
    InvalidOption,
    PlanStale,
    StorageRefused,
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
    outside.apply(outside.plan_maintenance("copy_table", target="db.v"))
    assert not [key for key in catalog.table("db.v").store.options.raw if "external" in key]


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


def test_an_empty_table_is_copied_as_its_definition(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(_FIELDS, ["dt", "k"], ["dt"], {"bucket": "1"}))
    plan = table.plan_maintenance("copy_table", target="db.c")
    report = table.apply(plan)
    assert report.changed
    assert report.lines("db.t")[0].startswith("db.c has the definition of db.t, which has no snapshot")
    assert catalog.table("db.c").schema == table.schema
    assert [entry.action for entry in table.ledger()] == ["copy_table"]
    again = _copy(table, "db.c")
    assert (again.changed, again.lines("db.t")) == (False, ["db.t was not copied: db.c has this copy already"])
    _write(table, range(6))
    assert _copy(table, "db.c").rows == 6  # the definition alone is no other history
    assert content(catalog.table("db.c")) == content(table)
    declined = catalog.create_table("db.e", Schema(_FIELDS, ["dt", "k"], ["dt"], {"bucket": "1"})).plan_maintenance(
        "copy_table", target="db.f", where="dt = 'd0'"
    )
    assert [each.text for each in declined.declined] == ["it has no snapshot, and so no partitions"]


def test_a_truncated_table_is_copied_and_goes_on(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    table.truncate()
    assert _copy(table, "db.c").lines("db.t")[0] == "db.c has the rows of snapshot 4 of db.t (0 stored rows)"
    copied = catalog.table("db.c")
    assert content(copied) == []
    _write(copied, range(3))
    assert [row[1] for row in content(copied)] == [0, 1, 2]
    assert not _copy(catalog.table("db.t"), "db.d", where="dt = 'd0'").changed


def test_an_empty_table_of_the_same_definition_may_be_the_target(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    same = Schema(_FIELDS, ["dt", "k"], ["dt"], {"write-only": "true", **KINDS["keyed"][1]})
    catalog.create_table("db.same", same)
    assert _copy(table, "db.same").changed
    assert content(catalog.table("db.same")) == content(table)
    catalog.create_table("db.other", Schema(_FIELDS, ["dt", "k"], ["dt"], {"bucket": "3"}))
    with pytest.raises(TableExists, match=r"db\.other .* definition than db\.t \(schema 0: options\); copy db\.t to"):
        _copy(table, "db.other")
    catalog.create_table("db.altered", same)
    catalog.alter_table("db.altered", [SchemaChange.set_option("num-levels", "4")])
    with pytest.raises(TableExists, match=r"schema 1: db\.t has no such schema"):
        _copy(table, "db.altered")


def test_a_lost_file_is_named_and_an_expired_snapshot_is_another_error(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    table = catalog.table("db.t")
    plan = table.plan_maintenance("copy_table", target="db.c")
    table.create_tag("kept")
    _write(table, range(100, 103))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
    assert table.apply(plan).changed  # the tag keeps the planned snapshot
    lost = next((tmp_path / "warehouse").glob("db.db/t/dt=d0/bucket-0/data-*"))
    lost.unlink()
    with pytest.raises(CorruptFile, match=rf"{lost.name}: the file is missing, but table db\.t references it; `dredge"):
        _copy(catalog.table("db.t"), "db.d")


def test_files_and_links_in_place_of_the_target(tmp_path: Path) -> None:
    table = _warehouse(tmp_path).table("db.t")
    database = tmp_path / "warehouse" / "db.db"
    (database / "file").write_text("no table")
    (database / "dangling").symlink_to(tmp_path / "nowhere")
    (database / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "plain").write_text("no warehouse")
    for target, warehouse, message in (
        ("db.file", None, "db.db/file: it is a file; remove it, or copy to another name"),
        ("db.dangling", None, "dangling: it is a symbolic link"),
        ("db.elsewhere", None, "elsewhere: it is a symbolic link"),
        ("db.c", str(tmp_path / "plain"), "plain: it is a file"),
        ("db.c", str(database / "dangling"), "dangling: it is a symbolic link"),
    ):
        with pytest.raises(StorageRefused, match=message):
            table.plan_maintenance("copy_table", target=target, target_warehouse=warehouse)
    (tmp_path / "mounted").mkdir()
    (tmp_path / "volume").symlink_to(tmp_path / "mounted")
    assert _copy(table, "db.c", target_warehouse=str(tmp_path / "volume")).changed
    assert content(Catalog(tmp_path / "mounted").table("db.c")) == content(table)


@pytest.mark.parametrize("door", ["verb", "python", "procedure", "apply"])
def test_a_copy_inside_a_jdbc_catalog_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    catalog = Catalog(tmp_path / "warehouse", options)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(_FIELDS, ["dt", "k"], ["dt"], {"bucket": "1"}))
    _write(table, range(4))
    monkeypatch.setenv("DREDGE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("DREDGE_CATALOG_OPTIONS", " ".join(f"{key}={value}" for key, value in options.items()))
    if door == "verb":
        assert run(["copy-table", "db.t", "new.c"]) == 0
    elif door == "python":
        _copy(table.copy({"target-file-size": "1 mb"}), "new.c")
    elif door == "procedure":
        prepare_call(catalog, "CALL sys.copy('db.t', 'new.c')").apply()
    else:
        plan = table.plan_maintenance("copy_table", target="new.c")
        table.save_plan(plan)
        assert run(["apply", "db.t", plan.hash]) == 0
    again = Catalog(tmp_path / "warehouse", options)
    assert (again.list_databases(), again.list_tables("new")) == (["db", "new"], ["c"])
    assert content(again.table("new.c")) == content(table)
    _copy(table, "new.c", target_warehouse=str(tmp_path / "backup"))  # another warehouse has no rows here
    assert Catalog(tmp_path / "backup").list_tables("new") == ["c"]
    assert again.list_tables("new") == ["c"]


def test_a_copy_that_a_jdbc_catalog_does_not_list_is_entered_again(tmp_path: Path) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    catalog = Catalog(tmp_path / "warehouse", options)
    catalog.create_database("db")
    _write(catalog.create_table("db.t", Schema(_FIELDS, ["dt", "k"], ["dt"], {"bucket": "1"})), range(4))
    _copy(Catalog(tmp_path / "warehouse").table("db.t"), "db.c")  # by a catalog of folders
    assert catalog.list_tables("db") == ["t"]
    assert not _copy(catalog.table("db.t"), "db.c").changed
    assert catalog.list_tables("db") == ["c", "t"]


def test_clone_if_exists_and_addresses_of_the_warehouse(tmp_path: Path) -> None:
    catalog = _warehouse(tmp_path)
    clone = "CALL sys.clone(database => 'db', `table` => 't', target_database => 'db', target_table => 'c'"
    assert prepare_call(catalog, f"{clone}, clone_if_exists => false)").apply().plans
    _write(catalog.table("db.t"), range(3))
    assert prepare_call(catalog, f"{clone}, clone_if_exists => false)").apply().lines == ["nothing to do"]
    with pytest.raises(TableExists, match="has snapshots"):
        prepare_call(catalog, f"{clone})").apply()
    for address in (f"file:{catalog.root}", f"file://{catalog.root}/", f"{catalog.root}/"):
        call = f"CALL sys.copy_files('{address}', 'db', 't', NULL, '{tmp_path / 'backup'}')"
        assert prepare_call(catalog, call).plan().plans
