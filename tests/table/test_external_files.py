"""Tables with data files in external paths, through their whole life: nothing of them is lost, nothing of others is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.cli.app import run
from lsm_core.clock import FixedClock
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.metadata import manifests
from lsm_core.options import EXTERNAL_ROOTS
from tests.maintenance.tables import NOW, content, referenced
from tests.support.s3_server import S3Server
from tests.table.test_imported_files import imported

_DAY = 86_400_000
_KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "keyed": (["p", "k"], {"bucket": "2", "changelog-producer": "full-compaction"}),
    "vectors": (
        ["p", "k"],
        {"bucket": "1", "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"},
    ),
    "dynamic": (["p", "k"], {"bucket": "-1", "index-file-in-data-file-dir": "true"}),
    "append": ([], {"bucket": "-1", "file-index.bloom-filter.columns": "k", "file-index.in-manifest-threshold": "1 b"}),
}
_STRATEGIES = {"keyed": "round-robin", "vectors": "weight-robin", "dynamic": "specific-fs", "append": "entropy-inject"}


@pytest.fixture(autouse=True)
def _no_compaction_by_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")


def warehouse(tmp_path: Path, roots: str | None = None) -> Catalog:
    allowed = f"{tmp_path}/ext:rw" if roots is None else roots
    catalog = Catalog(tmp_path / "wh", {"dredge.external-roots": allowed} if allowed else {}, clock=FixedClock(NOW))
    catalog.create_database("db", ignore_if_exists=True)
    return catalog


def create(tmp_path: Path, kind: str, name: str = "db.t", **more: str) -> Table:
    keys, options = _KINDS[kind]
    fields = pa.schema(
        [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
    )
    places = f"file:{tmp_path}/ext/{name}/a,file:{tmp_path}/ext/{name}/b"
    settings = {
        **options,
        "data-file.external-paths": places,
        "data-file.external-paths.strategy": _STRATEGIES[kind],
        "data-file.external-paths.weights": "2,1",
        "data-file.external-paths.specific-fs": "file",
        **more,
    }
    return warehouse(tmp_path).create_table(name, Schema(fields, keys, ["p"], settings))


def fill(table: Table, commits: int = 3) -> None:
    for number in range(commits):
        keys = [*range(number, number + 4)]
        table.write(pa.table({"p": ["a b:%"] * 2 + ["c"] * 2, "k": keys, "v": [number * 10] * 4}))


def files_in(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def expire(table: Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    table.sweep_trash(now_ms=NOW + 100 * _DAY)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "append" else pytest.mark.soak) for kind in _KINDS]
)
def test_a_life(tmp_path: Path, kind: str) -> None:
    table = create(tmp_path, kind)
    fill(table)
    table.compact(full=True)
    rows = content(table)
    own = [path for path in files_in(Path(table.store.root)) if "/bucket-" in path]
    assert own == []
    paths = warehouse(tmp_path).table("db.t$files").to_arrow()["file_path"].to_pylist()
    assert paths and all(path.startswith(f"file:{tmp_path}/ext/db.t/") for path in paths)
    # rows change, the change is undone or kept
    table.delete("k = 2")
    table.compact(full=True)
    kept = [row for row in rows if row[1] != 2]
    assert content(table) == kept
    if kind == "dynamic":
        fill(table, 1)
        merged = content(table)
        table.undo(table.compact(full=True).run_id)
        assert content(table) == merged != kept
        kept = merged
    if kind == "keyed":
        table.apply(table.plan_maintenance("rescale", bucket_num=3))
        assert content(table) == kept
    if kind == "append":
        table.apply(table.plan_maintenance("compact", full=True, order_by=["k"], strategy="order"))
        assert content(table) == kept
    assert [report.text for report in table.check() if not report.passed] == []
    # expiry deletes what is replaced, and nothing else
    stranger = tmp_path / "ext" / "db.t" / "a" / "README"
    stranger.write_text("mine")
    other = tmp_path / "ext" / "another" / "bucket-0" / "data-00000000-0000-0000-0000-000000000000-0.parquet"
    other.parent.mkdir(parents=True)
    other.write_text("x")
    before = files_in(tmp_path / "ext")
    expire(table)
    after = files_in(tmp_path / "ext")
    assert after < before and {str(stranger), str(other)} <= after
    assert content(table) == kept
    names = referenced(table)
    assert {Path(path).name for path in after} - {"README", other.name} <= names
    # orphan cleaning removes a stray in the table's folders only
    stray = Path(next(path for path in after if "/bucket-" in path and "db.t" in path))
    stray = stray.parent / "data-11111111-1111-1111-1111-111111111111-7.parquet"
    stray.write_text("x")
    for path in (stray, stranger, other):
        os.utime(path, (0, 0))
    table.remove_orphan_files(older_than_ms=_DAY)
    table.sweep_trash(now_ms=NOW + 100 * _DAY)
    assert files_in(tmp_path / "ext") == after
    # a copy has its files in its own folder, a rename keeps them, a drop takes them
    table.apply(table.plan_maintenance("copy_table", target="db.copy"))
    copy = warehouse(tmp_path, "").table("db.copy")
    assert content(copy) == kept
    assert "data-file.external-paths" not in copy.store.options.raw
    catalog = warehouse(tmp_path)
    catalog.rename_table("db.t", "db.renamed")
    assert content(catalog.table("db.renamed")) == kept
    catalog.drop_table("db.renamed")
    assert files_in(tmp_path / "ext") == {str(stranger), str(other)}
    assert content(copy) == kept


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.to_arrow(),
        lambda table: table.write(pa.table({"p": ["c"], "k": [1], "v": [1]})),
        lambda table: table.compact(full=True),
        lambda table: table.delete("k = 1"),
        lambda table: table.plan_maintenance("rescale", bucket_num=5),
        lambda table: table.apply(table.plan_maintenance("copy_table", target="db.c")),
    ],
)
@pytest.mark.parametrize("roots", ["", "{tmp}/ext2:rw"])
def test_without_permission_nothing_happens(filled: Path, act: Callable[[Table], Any], roots: str) -> None:
    before = state(filled)
    table = warehouse(filled, roots.format(tmp=filled)).table("db.t")
    with pytest.raises(UnsupportedFeature, match=rf"{filled}/ext/db.t/[ab].*{EXTERNAL_ROOTS}"):
        act(table)
    with pytest.raises(UnsupportedFeature, match=EXTERNAL_ROOTS):
        warehouse(filled, "").drop_table("db.t")
    assert state(filled) == before


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table that no test changes."""
    folder = tmp_path_factory.mktemp("filled")
    fill(create(folder, "keyed", **{"dredge.compaction.inline": "never"}))
    return folder


def state(folder: Path) -> dict[str, bytes]:
    """All files but the ledger, which records refused runs."""
    return {path: Path(path).read_bytes() for path in files_in(folder) if "/dredge/ledger/" not in path}


def test_a_folder_for_reading_keeps_its_files(tmp_path: Path) -> None:
    table = create(tmp_path, "keyed")
    fill(table)
    table.compact(full=True)
    rows, before = content(table), files_in(tmp_path / "ext")
    table = warehouse(tmp_path, f"{tmp_path}/ext:r").table("db.t")
    assert content(table) == rows
    with pytest.raises(UnsupportedFeature, match=r"for reading only; set '.*/ext:rw'"):
        table.write(pa.table({"p": ["c"], "k": [1], "v": [1]}))
    report = table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    (left,) = [item for item in report.declined if item.reason == "outside"]
    assert left.facts["files"]
    assert EXTERNAL_ROOTS in left.text
    table.sweep_trash(now_ms=NOW + 100 * _DAY)
    warehouse(tmp_path, f"{tmp_path}/ext:r").drop_table("db.t")
    assert files_in(tmp_path / "ext") == before


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_rollback_counts_the_files_that_it_leaves(tmp_path: Path, mode: str) -> None:
    table = create(tmp_path, "keyed", **{"changelog-producer": "input"})
    fill(table)
    before = files_in(tmp_path / "ext")
    table = warehouse(tmp_path, f"{tmp_path}/ext:{mode}").table("db.t")
    report = table.rollback_to(1)
    left = [item.facts["files"] for item in report.declined if item.reason == "outside"]
    table.sweep_trash(now_ms=NOW + 100 * _DAY)
    after = files_in(tmp_path / "ext")
    assert left == (
        [len([path for path in after if "/data-" in path and path not in first_files(table)])] * (mode == "r")
    )
    assert (after == before) is (mode == "r")
    assert {Path(path).name for path in after} <= referenced(table) or mode == "r"


def first_files(table: Table) -> set[str]:
    """Paths of the live data files."""
    entries = manifests.live_entries(table.store, table.latest_snapshot())
    return {path.removeprefix("file:") for path in entries.column("external_path").to_pylist()}


def test_a_recorded_deletion_can_be_restored(tmp_path: Path) -> None:
    table = create(tmp_path, "append")
    fill(table)
    first = content(table, 1)
    table.compact(full=True)
    report = table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    assert report.trash_id is not None
    assert any(item.path.startswith(f"{tmp_path}/ext/") for item in _record(table).files)
    table.restore(report.trash_id)
    assert content(table, 1) == first


def _record(table: Table) -> Any:
    from lsm_core.maintenance.trash import read_trash

    (record,) = read_trash(table.store).records
    return record


def test_branches_and_tags_keep_external_files(tmp_path: Path) -> None:
    table = create(tmp_path, "append", **{"dredge.compaction.mergeable-branches": "as-paimon"})
    fill(table)
    table.create_tag("keep", snapshot_id=1)
    table.create_branch("dev", from_tag="keep")
    first = content(table, 1)
    table.compact(full=True)
    expire(table)
    assert content(warehouse(tmp_path).table("db.t$branch_dev")) == first
    table.delete_branch("dev")
    table.delete_tag("keep")
    table.sweep_trash(now_ms=NOW + 100 * _DAY)
    assert {Path(path).name for path in files_in(tmp_path / "ext")} <= referenced(table)


def test_a_drop_takes_files_of_earlier_paths_and_of_branches(tmp_path: Path) -> None:
    table = create(tmp_path, "append")
    fill(table)
    table.create_branch("dev", from_tag=None)
    catalog = warehouse(tmp_path)
    key = "data-file.external-paths"
    catalog.alter_table("db.t", [SchemaChange.set_option(key, f"file:{tmp_path}/ext/later")])
    fill(catalog.table("db.t"))
    fill(catalog.table("db.t$branch_dev"))
    assert len(files_in(tmp_path / "ext" / "later")) > 0
    assert len(content(catalog.table("db.t"))) == 24
    catalog.drop_table("db.t")
    assert files_in(tmp_path / "ext") == set()


def test_files_are_deleted_at_once_in_direct_mode(tmp_path: Path) -> None:
    table = create(tmp_path, "append", **{"dredge.delete-mode": "direct"})
    fill(table)
    table.compact(full=True)
    report = table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    assert report.files_deleted > 6
    assert {Path(path).name for path in files_in(tmp_path / "ext")} <= referenced(table)


def test_another_tables_place_is_not_cleaned(tmp_path: Path) -> None:
    """Two tables declare one path: each expires its own files, and nobody looks for orphans there."""
    shared = {"data-file.external-paths": f"file:{tmp_path}/ext/shared"}
    tables = [create(tmp_path, "append", name, **shared) for name in ("db.t", "db.u")]
    for table in tables:
        fill(table)
    rows = content(tables[1])
    tables[0].compact(full=True)
    expire(tables[0])
    plan = tables[0].plan_maintenance("orphans", older_than_ms=0)
    assert [item.subject for item in plan.declined if item.reason == "shared"] == [f"{tmp_path}/ext/shared"]
    assert content(tables[1]) == rows
    warehouse(tmp_path).drop_table("db.t")
    assert content(tables[1]) == rows
    assert {Path(path).name for path in files_in(tmp_path / "ext")} == {
        name for name in referenced(tables[1]) if name.startswith("data-")
    }


def test_an_earlier_path_of_another_table_is_not_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table t wrote to a path before it declared another one; table u declares the first path later, by another name."""
    (tmp_path / "alias").symlink_to(tmp_path / "ext")
    key = "data-file.external-paths"
    fill(create(tmp_path, "append", **{key: f"file:{tmp_path}/ext/x"}))
    warehouse(tmp_path).alter_table("db.t", [SchemaChange.set_option(key, f"file:{tmp_path}/ext/y")])
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/alias:rw")
    table = warehouse(tmp_path).table("db.t")
    rows = content(table)
    for name, place in (("db.u", "alias/x"), ("db.w", "ext/x")):
        create(tmp_path, "append", name, **{key: f"file:{tmp_path}/{place}"})
        other = warehouse(tmp_path).table(name)
        for path in files_in(tmp_path / "ext"):
            os.utime(path, (0, 0))
        other.remove_orphan_files(older_than_ms=_DAY)
        other.sweep_trash(now_ms=NOW + 100 * _DAY)
        assert content(table) == rows
    before = files_in(tmp_path / "ext")
    table.compact(full=True)
    expire(table)
    assert before & files_in(tmp_path / "ext") == set()
    warehouse(tmp_path).drop_table("db.u")
    assert content(table) == rows


def test_a_drop_deletes_no_file_of_a_foreign_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Manifests of a dropped table that name files of the operator and of another table below its external path."""
    key = "data-file.external-paths"
    victim = create(tmp_path, "append", "db.victim")
    fill(victim)
    rows, table = content(victim), create(tmp_path, "append", **{key: f"file:{tmp_path}/ext"})
    fill(table, 1)
    mine = [tmp_path / "ext" / "p=c" / "bucket-0" / "id_rsa", tmp_path / "ext" / "notes.txt"]
    for path in mine:
        path.write_text("x")
    victims = [*map(str, mine), *(path for path in files_in(tmp_path / "ext" / "db.victim") if "/data-" in path)]
    store, snapshot = table.store, table.latest_snapshot()
    entries = manifests.live_entries(store, snapshot)
    entries = pa.concat_tables([entries.slice(0, 1)] * (len(victims) + 2))
    for column, values in (
        ("file_name", ["../../notes.txt", "x", *(Path(path).name for path in victims)]),
        ("external_path", [f"file:{path}" for path in (mine[0], tmp_path / "ext" / ".." / "x", *victims)]),
    ):
        at = entries.schema.get_field_index(column)
        entries = entries.set_column(at, entries.schema.field(at), pa.array(values))
    manifests.write_manifests(store, entries)
    warehouse(tmp_path).drop_table("db.t")
    assert all(path.read_text() == "x" for path in mine)
    assert content(victim) == rows
    assert "notes.txt' stays" in caplog.text
    assert not (tmp_path / "wh" / "db.db" / "t").exists()


def test_a_drop_of_a_table_with_a_damaged_schema_leaves_its_external_files(tmp_path: Path) -> None:
    fill(create(tmp_path, "append"))
    warehouse(tmp_path).alter_table("db.t", [SchemaChange.set_option("snapshot.time-retained", "2 h")])
    (tmp_path / "wh" / "db.db" / "t" / "schema" / "schema-0").write_text("{")
    before = files_in(tmp_path / "ext")
    warehouse(tmp_path).drop_table("db.t")
    assert files_in(tmp_path / "ext") == before
    assert not (tmp_path / "wh" / "db.db" / "t").exists()


def test_files_of_a_folder_that_is_not_mounted_are_not_taken_for_lost(tmp_path: Path) -> None:
    table = create(tmp_path, "append")
    fill(table, 1)
    warehouse(tmp_path).alter_table("db.t", [SchemaChange.set_option("data-file.external-paths.strategy", "none")])
    table = warehouse(tmp_path).table("db.t")
    fill(table, 2)
    rows = content(table)
    lost = Path(next(path for path in files_in(tmp_path / "ext") if path.endswith(".parquet")))
    for folder in ("ext", "ext/db.t/a", "ext/db.t/b"):
        (tmp_path / folder).rename(tmp_path / "off")
        report = table.apply(table.plan_maintenance("remove_unexisting_files"))
        left = [item for item in report.declined if item.reason == "unavailable"]
        assert (report.files, "mount its disk" in "".join(item.text for item in left)) == (0, left != [])
        assert left or folder != "ext"
        (tmp_path / "off").rename(tmp_path / folder)
        assert content(table) == rows
    lost.unlink()
    assert table.apply(table.plan_maintenance("remove_unexisting_files")).files == 1


def test_external_paths_in_an_object_store(s3: S3Server) -> None:
    """A table in one bucket, with its files in another."""
    place = f"{s3.bucket()}/ext/t"
    options = {**s3.options, "dredge.external-roots": f"{place}:rw"}
    catalog = Catalog(f"{s3.bucket()}/house", options, clock=FixedClock(NOW))
    catalog.create_database("db")
    settings = {
        "bucket": "-1",
        "data-file.external-paths": place,
        "data-file.external-paths.strategy": "entropy-inject",
    }
    table = catalog.create_table("db.t", Schema(pa.schema([("k", pa.int64())]), options=settings))
    for number in range(3):
        table.write(pa.table({"k": [number]}))
    table.compact(full=True)
    paths = catalog.table("db.t$files").to_arrow()["file_path"].to_pylist()
    assert len(paths) == 1 and paths[0].startswith(f"{place}/bucket-0/")
    stored = table.store.file_io
    folder = paths[0].rpartition("/")[0]
    assert [status.path for status in stored.list_dir(folder)] == paths
    expire(table)
    assert content(table) == [(0,), (1,), (2,)]
    with pytest.raises(UnsupportedFeature, match=EXTERNAL_ROOTS):
        Catalog(catalog.root, s3.options).table("db.t").to_arrow()
    local = {
        **settings,
        "data-file.external-paths": "file:///tmp/ext",
        "data-file.external-paths.strategy": "round-robin",
    }
    with pytest.raises(UnsupportedFeature, match="another kind of storage"):
        catalog.create_table("db.u", Schema(pa.schema([("k", pa.int64())]), options=local))
    catalog.drop_table("db.t")
    assert not stored.exists(paths[0])


# -- imported files ------------------------------------------------------------------------------------------------------


def test_imported_files_are_read_and_compacted_into_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = imported(tmp_path)
    originals = files_in(tmp_path / "elsewhere")
    for roots, deleted in ((f"{tmp_path}/elsewhere", False), (f"{tmp_path}/elsewhere:rw", True)):
        monkeypatch.setenv(EXTERNAL_ROOTS, roots)
        table = table.refresh()
        rows = content(table)
        assert len(rows) == 4
        table.compact(full=True)
        table.write(pa.table({"k": [100], "v": [1], "s": ["x"]}))
        table.delete("k = 100")
        table.compact(full=True)
        assert content(table) == rows
        live = manifests.live_entries(table.store, table.latest_snapshot())
        if not deleted:
            assert live.column("external_path").null_count == len(live)
            table.create_tag("import", snapshot_id=1)
        else:
            table.delete_tag("import")
        expire(table)
        assert files_in(tmp_path / "elsewhere") == (set() if deleted else originals)


def test_a_drop_leaves_imported_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(tmp_path)
    before = files_in(tmp_path / "elsewhere")
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/elsewhere:rw")
    Catalog(tmp_path / "wh").drop_table("db.t")
    assert files_in(tmp_path / "elsewhere") == before


def test_imported_files_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files `part-0.parquet` of different folders in one bucket."""
    table = imported(tmp_path)
    monkeypatch.setenv(EXTERNAL_ROOTS, str(tmp_path))
    live = manifests.live_entries(table.store, table.latest_snapshot())
    from lsm_core.metadata.support import describe_refused_places

    assert describe_refused_places(table.store, live) is None
    assert "of one name" in str(describe_refused_places(table.store, pa.concat_tables([live, live])))


# -- hostile tables ------------------------------------------------------------------------------------------------------


def test_a_forged_record_reaches_no_file_outside_the_layout(tmp_path: Path) -> None:
    table = create(tmp_path, "append")
    fill(table)
    victims = [
        tmp_path / "ext" / "db.t" / "a" / "passwd",
        tmp_path / "ext" / "db.t" / "a" / "bucket-0" / "important.txt",
        tmp_path / "ext" / "db.t" / "a" / "x" / "bucket-0" / "data-1.parquet",
        tmp_path / "outside" / "bucket-0" / "data-1.parquet",
        tmp_path / "external2" / "bucket-0" / "data-1.parquet",
    ]
    for victim in victims:
        victim.parent.mkdir(parents=True, exist_ok=True)
        victim.write_text("x")
    other = create(tmp_path, "append", "db.u")
    fill(other)
    rows = content(other)
    victims += [Path(path) for path in files_in(tmp_path / "ext" / "db.u")]
    for victim in victims:
        record = {
            "version": 1,
            "trash_id": "forged",
            "action": "orphans",
            "table": "db.t",
            "plan_hash": "0" * 32,
            "created_ms": 1,
            "not_before_ms": 1,
            "snapshots": [],
            "files": [{"path": str(victim), "kind": "data", "size": 1, "reason": "x"}],
        }
        place = Path(table.store.root) / "dredge" / "trash" / "forged.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(record))
        with suppress(DredgeError):
            assert table.sweep_trash(now_ms=NOW + 100 * _DAY).files_deleted == 0
        assert victim.exists()
    assert content(other) == rows


# -- command line --------------------------------------------------------------------------------------------------------


def test_doctor_and_status_name_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(create(tmp_path, "keyed"))
    for roots, verdict in (("", "warn"), (f"{tmp_path}/ext:rw,/import:r", "ok")):
        monkeypatch.setenv(EXTERNAL_ROOTS, roots)
        assert run(["doctor", "-w", str(tmp_path / "wh"), "--json"]) in (0, 1)
        findings = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["check"] == "external paths"]
        assert findings[0]["verdict"] == verdict
        assert EXTERNAL_ROOTS in findings[0]["text"]
        assert findings[-1]["text"].endswith("none" if not roots else f"{tmp_path}/ext:rw, /import:r")
        assert run(["status", "-w", str(tmp_path / "wh"), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert bool(row["cannot"]) is not bool(roots)
