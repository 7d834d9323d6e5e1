"""Handles of a table that was dropped, renamed, or dropped and created again by others: one error, and no trace."""

from __future__ import annotations

import inspect
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.commit.attempt import CommitHooks, Phase
from lsm_core.errors import CorruptFile, SnapshotNotFound, TableNotFound, WriterStale
from lsm_core.metadata.store import TableStore, load_schema
from lsm_core.table.readable_table import ReadableTable

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
WIDER = pa.schema([*FIELDS, ("z", pa.int64())])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]})


def created(catalog: Catalog, **options: str) -> Table:
    given = {"bucket": "1", **{key.replace("_", "-"): value for key, value in options.items()}}
    return catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=given))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path)  # with the system's clock: the time of creation distinguishes two tables
    catalog.create_database("db")
    return catalog


def drop(catalog: Catalog) -> str:
    catalog.drop_table("db.t")
    return r"table db\.t was dropped or renamed since it was opened: it does not exist any more"


def rename(catalog: Catalog) -> str:
    catalog.rename_table("db.t", "db.u")
    return r"table db\.t was dropped or renamed since it was opened: it does not exist any more"


def recreate(catalog: Catalog) -> str:
    catalog.drop_table("db.t")
    created(catalog).write(rows(3))
    return r"table db\.t was replaced since it was opened: it was dropped and created again.*open it again"


LOSSES = [drop, rename, recreate]
Loss = Callable[[Catalog], str]


def paths(root: Path) -> dict[str, bytes | None]:
    """All files with their bytes, and all folders."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


CALLS: dict[str, Callable[[Table], Any]] = {
    "write": lambda table: table.write(rows(9)),
    "delete": lambda table: table.delete("k = 3"),
    "update": lambda table: table.update("k = 3", {"v": "w"}),
    "upsert": lambda table: table.upsert(rows(9)),
    "truncate": lambda table: table.truncate(),
    "drop_partitions": lambda table: table.drop_partitions([{"k": 3}]),
    "new_write": lambda table: table.new_write(),
    "new_commit": lambda table: table.new_commit(),
    "new_stream_write": lambda table: table.new_stream_write("job"),
    "new_stream_commit": lambda table: table.new_stream_commit("job"),
    "plan_scan": lambda table: table.plan_scan(),
    "lookup": lambda table: table.lookup(pa.table({"k": [3]})),
    "incremental": lambda table: table.incremental(0, 1),
    "new_stream_scan": lambda table: table.new_stream_scan("job"),
    "forget_consumer": lambda table: table.forget_consumer("job"),
    "consumers": lambda table: table.consumers(),
    "reset_consumer": lambda table: table.reset_consumer("job", 1),
    "latest_snapshot": lambda table: table.latest_snapshot(),
    "snapshots": lambda table: table.snapshots(),
    "analyze": lambda table: table.analyze(),
    "explain_row": lambda table: table.explain_row({"k": 3}),
    "health": lambda table: table.health(),
    "simulate": lambda table: table.simulate(),
    "plan_maintenance": lambda table: table.plan_maintenance("orphans"),
    "save_plan": lambda table: table.save_plan(None),  # type: ignore[arg-type]
    "load_plan": lambda table: table.load_plan("ab"),
    "saved_plans": lambda table: table.saved_plans(),
    "apply": lambda table: table.apply(None),  # type: ignore[arg-type]
    "compact": lambda table: table.compact(full=True),
    "recover": lambda table: table.recover(),
    "expire_snapshots": lambda table: table.expire_snapshots(retain_max=1, retain_min=1),
    "remove_orphan_files": lambda table: table.remove_orphan_files(),
    "holds": lambda table: table.holds(),
    "expire_partitions": lambda table: table.expire_partitions(),
    "create_tag": lambda table: table.create_tag("x"),
    "delete_tag": lambda table: table.delete_tag("x"),
    "rename_tag": lambda table: table.rename_tag("x", "y"),
    "tags": lambda table: table.tags(),
    "expire_tags": lambda table: table.expire_tags(),
    "rollback_to": lambda table: table.rollback_to(1),
    "rollback_to_as_latest": lambda table: table.rollback_to_as_latest(1),
    "verify": lambda table: table.verify(1, 1),
    "check": lambda table: table.check(),
    "undo": lambda table: table.undo("x"),
    "restore": lambda table: table.restore("x"),
    "sweep_trash": lambda table: table.sweep_trash(),
    "branches": lambda table: table.branches(),
    "create_branch": lambda table: table.create_branch("b"),
    "delete_branch": lambda table: table.delete_branch("b"),
    "rename_branch": lambda table: table.rename_branch("b", "c"),
    "fast_forward": lambda table: table.fast_forward("b"),
    "mark_partitions_done": lambda table: table.mark_partitions_done([{}]),
    "ledger": lambda table: table.ledger(),
    "to_arrow": lambda table: table.to_arrow(),
    "to_batches": lambda table: list(table.to_batches()),
    "to_pandas": lambda table: table.to_pandas(),
    "to_polars": lambda table: table.to_polars(),
    "to_duckdb": lambda table: table.to_duckdb().sql("select * from t").fetchall(),
    "scan": lambda table: table.scan().to_table(),
}


def test_every_method_is_called_below() -> None:
    methods = {name for kind in (Table, ReadableTable) for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} - CALLS.keys() == {"copy", "refresh"}


@pytest.mark.parametrize("lose", LOSSES)
def test_no_method_reads_or_writes_another_table(catalog: Catalog, tmp_path: Path, lose: Loss) -> None:
    table = created(catalog)
    table.write(rows(1, 2))
    copy = table.copy({"scan.snapshot-id": "1"})
    message = lose(catalog)
    before = paths(tmp_path)
    for name, call in CALLS.items():
        with pytest.raises(TableNotFound, match=message):
            call(table)
        assert paths(tmp_path) == before, name
    with pytest.raises(TableNotFound, match=message):
        copy.to_arrow()


@pytest.mark.parametrize("lose", LOSSES)
def test_writers_readers_and_streams_that_were_open(catalog: Catalog, tmp_path: Path, lose: Loss) -> None:
    table = created(catalog, changelog_producer="input")
    table.write(rows(1, 2))
    batch, stream, closed = table.new_write(), table.new_stream_write("job"), table.new_write()
    for writer in (batch, stream, closed):
        writer.write(rows(7))
    messages = closed.prepare_commit()
    commits = table.new_commit(), table.new_stream_commit("job")
    lazy, batches, changes = table.scan(), table.to_batches(), table.new_stream_scan("consumer", from_snapshot=1)
    assert changes.next() is not None
    files = table.store.root
    system = catalog.table("db.t$snapshots")
    message = lose(catalog)
    before = paths(tmp_path)
    for call in (
        batch.prepare_commit,
        stream.prepare_commit,
        lambda: commits[0].commit(messages),
        lambda: commits[1].commit(messages, 1),
        lambda: lazy.to_table(),
        lambda: list(batches),
        changes.next,
        changes.checkpoint,
        system.to_arrow,
    ):
        with pytest.raises(TableNotFound, match=message):
            call()
    stream.close()
    batch.abort()
    ours = {f"db.db/t/bucket-0/{file.file_name}" for message in messages for file in message.new_files}
    assert {name: data for name, data in paths(tmp_path).items() if name not in ours} == {
        name: data for name, data in before.items() if name not in ours
    }
    assert Path(files).exists() == (lose is recreate)


def test_rows_of_a_full_buffer_make_no_folder_of_a_renamed_table(catalog: Catalog, tmp_path: Path) -> None:
    table = created(catalog, write_buffer_size="64 kb", write_buffer_spillable="false")
    with pytest.raises(TableNotFound, match="dropped or renamed"), table.new_write() as writer:
        catalog.rename_table("db.t", "db.u")
        for start in range(0, 200_000, 20_000):
            writer.write(rows(*range(start, start + 20_000)))
    assert not (tmp_path / "db.db" / "t").exists()


@pytest.mark.parametrize("phase", [Phase.READ_BASE, Phase.WRITE_MANIFESTS, Phase.PUBLISH])
def test_a_table_that_is_replaced_during_a_commit(catalog: Catalog, tmp_path: Path, phase: Phase) -> None:
    table = created(catalog)
    table.write(rows(1))
    with table.new_write() as writer:
        writer.write(rows(2))
        messages = writer.prepare_commit()
    before: dict[str, bytes | None] = {}

    def interrupt(reached: Phase, info: object) -> None:
        if reached is phase and not before:
            recreate(catalog)
            before.update(paths(tmp_path))

    with pytest.raises(TableNotFound, match="was replaced"):
        Committer(table.store, "job", CommitHooks(interrupt)).commit(messages)
    after = paths(tmp_path)
    assert {name: data for name, data in after.items() if data is not None} == {
        name: data for name, data in before.items() if data is not None
    }
    assert catalog.table("db.t").to_arrow().column("k").to_pylist() == [3]


@pytest.mark.parametrize("lose", LOSSES)
def test_other_processes_and_copies_notice_it_too(catalog: Catalog, lose: Loss) -> None:
    store = created(catalog).store
    text, copies = store.to_json(), [pickle.loads(pickle.dumps(store)), store.with_buckets(2), store.in_family("ab")]
    for copy in [*copies, store.with_schema(store.schema), TableStore.from_json(text)]:
        copy.require_same()
    message = lose(catalog)
    for copy in copies:
        with pytest.raises(TableNotFound, match=message):
            copy.require_same()
    with pytest.raises(TableNotFound, match=message if lose is recreate else r"table db\.t does not exist"):
        TableStore.from_json(text)


def test_a_schema_with_other_content_is_another_table(catalog: Catalog) -> None:
    """A rollback of schemas by Java, and another ALTER: the same id, other columns."""
    table = created(catalog)
    catalog.alter_table("db.t", [SchemaChange.add_column("z", pa.int64())])
    altered = catalog.table("db.t")
    Path(altered.store.schema_path(1)).unlink()
    with pytest.raises(TableNotFound, match="was replaced"):
        altered.to_arrow()
    assert table.to_arrow().num_rows == 0
    catalog.alter_table("db.t", [SchemaChange.add_column("y", pa.string())])
    with pytest.raises(TableNotFound, match="was replaced"):
        altered.write(pa.table({"k": [1], "v": ["a"], "z": [1]}))
    assert catalog.table("db.t").to_arrow().column_names == ["k", "v", "y"]


def test_altered_tables_are_the_same(catalog: Catalog) -> None:
    table = created(catalog)
    catalog.alter_table("db.t", [SchemaChange.set_option("snapshot.num-retained.max", "20")])
    assert table.write(rows(1)) == 1
    assert table.to_arrow().num_rows == 1
    catalog.drop_table("db.t")
    created(catalog)
    with pytest.raises(TableNotFound, match="was replaced"):
        table.write(rows(2))
    assert catalog.table("db.t").refresh().snapshots() == []
    assert table.refresh().snapshots() == []


def test_a_damaged_schema_is_named_as_such(catalog: Catalog) -> None:
    table = created(catalog)
    table.write(rows(1))
    Path(table.store.schema_path(0)).write_text("{")
    with pytest.raises(CorruptFile, match="schema-0"):
        table.to_arrow()


def test_schemas_are_decoded_again_when_their_bytes_change(catalog: Catalog) -> None:
    store = created(catalog).store
    path = Path(store.schema_path(0))
    assert load_schema(store.file_io, store.root, 0) == store.schema
    path.write_text(path.read_text().replace('"v"', '"w"'))
    assert load_schema(store.file_io, store.root, 0).field_names == ("k", "w")


def expire(table: Table) -> None:
    table.delete_tag("one")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + 1)


def roll_back(table: Table) -> None:
    table.rollback_to(1)
    table.write(rows(4))


@pytest.mark.parametrize("lose", [expire, roll_back])
@pytest.mark.parametrize("version", [{}, {"snapshot_id": 2}, {"tag": "one"}])
def test_readers_of_a_version_that_the_table_lost_name_the_version(
    catalog: Catalog, lose: Callable[[Table], None], version: dict[str, Any]
) -> None:
    table = created(catalog, write_only="true")
    table.write(rows(1))
    table.write(rows(2))
    table.create_tag("one")
    lazy, batches = table.scan(**version), table.to_batches(**version)
    if lose is expire:
        table.write(rows(3))
        table.compact(full=True)
    lose(table)
    table.sweep_trash(now_ms=table.store.clock.now_ms() + 10**12)
    for read in (lazy.to_table, lambda: list(batches)):
        with pytest.raises(SnapshotNotFound, match=r"table db\.t no longer has the snapshot 2 .* expired") as caught:
            read()
        assert caught.value.expired


@pytest.mark.parametrize("kept", ["snapshot", "tag", "damaged"])
def test_a_missing_file_of_a_version_that_is_kept_is_named(catalog: Catalog, kept: str) -> None:
    table = created(catalog)
    table.write(rows(1))
    table.create_tag("one")
    batches = table.to_batches(tag="one")
    if kept != "snapshot":
        table.write(rows(2))
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + 1)
    if kept == "damaged":
        (Path(table.store.root) / "tag" / "tag-one").write_text("{")
    for file in Path(table.store.root).glob("bucket-0/*"):
        file.unlink()
    with pytest.raises(CorruptFile, match="the file is missing"):
        list(batches)


ALTERATIONS = {
    "add": [SchemaChange.add_column("z", pa.int64())],
    "type": [SchemaChange.update_type("n", pa.int64())],
    "drop": [SchemaChange.drop_column("v")],
    "sequence": [SchemaChange.set_option("sequence.field", "n")],
}
PRODUCERS = ["none", "lookup", "full-compaction"]


@pytest.mark.parametrize("alteration", ALTERATIONS)
@pytest.mark.parametrize("force", ["true", "false"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_writers_of_an_older_schema_write_rightly_or_say_so_and_leave_nothing(
    catalog: Catalog, alteration: str, force: str, producer: str
) -> None:
    fields = pa.schema([*FIELDS, ("n", pa.int32())])
    options = {"bucket": "1", "commit.force-compact": force, "changelog-producer": producer}
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options=options))

    def data(key: int) -> pa.Table:
        return pa.table({"k": [key], "v": [f"v{key}"], "n": pa.array([key], pa.int32())})

    for key in (1, 2):
        table.write(data(key))
    batch, stream = table.new_write(), table.new_stream_write("job")
    batch.write(data(3))
    stream.write(data(4))
    catalog.alter_table("db.t", ALTERATIONS[alteration])
    newer = catalog.table("db.t")
    newer.write(pa.table({field.name: pa.array([5]).cast(field.type) for field in newer.schema.arrow_schema}))
    expected, refusals = {1, 2, 5}, []

    def attempt(commit: Callable[[], Any], key: int) -> None:
        try:
            commit()
        except WriterStale as error:
            refusals.append(str(error))
        else:
            expected.add(key)

    def commit_batch() -> None:
        with batch:
            table.new_commit().commit(batch.prepare_commit())

    def commit_stream() -> None:
        with stream:
            table.new_stream_commit("job").commit(stream.prepare_commit(wait_compaction=True), 1)

    attempt(commit_batch, 3)
    attempt(commit_stream, 4)
    attempt(lambda: table.write(data(6)), 6)
    assert all("open it again" in refusal for refusal in refusals)
    opened = catalog.table("db.t")
    assert set(opened.to_arrow().column("k").to_pylist()) == expected
    for snapshot in opened.snapshots():
        opened.to_arrow(snapshot_id=snapshot.id)
    assert opened.check(["tree_is_valid"])[0].passed
    time.sleep(0.01)
    orphans = opened.remove_orphan_files(older_than_ms=opened.store.clock.now_ms(), dry_run=True, max_share=100)
    assert (orphans.files_recorded, orphans.bytes_recorded) == (0, 0)
