"""A table in an object store lives as one on a disk does, from its creation to the sweep of its trash, and survives a store that fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table, errors
from lsm_core.cli.app import run
from lsm_core.clock import FixedClock
from lsm_core.commit import CommitMessage
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, FileIO
from lsm_core.storage.faults import Mode
from tests.faults.outcomes import outcome_of
from tests.faults.strides import strides
from tests.support.peers import refusal_of
from tests.support.s3_server import S3Server

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_700_000_000_000
DAY = 86_400_000
FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
)
OPTIONS = {
    "bucket": "2",
    "changelog-producer": "input",
    "commit.min-retry-wait": "1 ms",
    "commit.max-retry-wait": "5 ms",
}


def rows(keys: range, value: str, part: str = "a/b") -> pa.Table:
    return pa.table([[part] * len(keys), list(keys), [f"{value}{key}" for key in keys]], schema=FIELDS)


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def created(catalog: Catalog, name: str = "db.t", **options: str) -> Table:
    catalog.create_database("db", ignore_if_exists=True)
    schema = Schema(FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options={**OPTIONS, **options})
    return catalog.create_table(name, schema)


def files(io: FileIO, folder: str) -> dict[str, bytes]:
    """Everything below a folder."""
    found: dict[str, bytes] = {}
    for status in io.list_dir(folder):
        below = files(io, status.path) if status.is_dir else {"": io.read_bytes(status.path)}
        found |= {f"{status.name}/{name}".rstrip("/"): data for name, data in below.items()}
    return found


def life(catalog: Catalog) -> list[Any]:
    """What a table answers through its life."""
    clock = catalog.clock
    assert isinstance(clock, FixedClock)
    answers: list[Any] = []
    table = created(catalog)
    stream = table.new_stream_scan("reader", from_snapshot=1)
    for number in range(4):
        table.write(rows(range(number, number + 30), f"w{number}-"))
        table.write(rows(range(5), f"x{number}-", "c d"))
    changes = [stream.next() for _ in range(3)]
    answers.append([None if item is None else item.table.num_rows for item in changes])
    stream.checkpoint()
    table.delete([("k", "=", 3)])
    answers.append(content(table))
    answers.append(table.to_arrow(filter=[("p", "=", "c d"), ("k", ">", 1)], columns=["v"]).num_rows)
    report = table.compact(full=True)
    answers.append((report.files_in, report.files_out, report.rows_out, report.verification.level))
    answers.append(content(table))
    answers.append(table.lookup(pa.table({"p": ["a/b"], "k": [12]}, schema=pa.schema(list(FIELDS)[:2]))).to_pylist())
    answers.append(table.incremental(2, 4).num_rows)
    catalog.clock = FixedClock(NOW + 3 * DAY)
    table = catalog.table("db.t")
    expired = table.expire_snapshots(retain_max=2, retain_min=1)
    answers.append(len(snapshots.list_ids(table.store)))
    catalog.clock = FixedClock(NOW + 9 * DAY)
    table = catalog.table("db.t")
    swept = table.sweep_trash()
    answers.append((type(expired).__name__, swept.files_deleted, swept.files_missing))
    answers.append(content(table))
    answers.append(sorted(name.partition("/")[0] for name in files(catalog.file_io, table.store.root)))
    answers.append([entry.action for entry in table.ledger()])
    return answers


@pytest.fixture
def house(s3: S3Server) -> Catalog:
    return Catalog(f"{s3.bucket()}/house", s3.options, clock=FixedClock(NOW))


def test_a_table_lives_in_a_store_as_on_a_disk(house: Catalog, tmp_path: Path) -> None:
    assert life(house) == life(Catalog(str(tmp_path / "local"), clock=FixedClock(NOW)))


def history(catalog: Catalog) -> list[Any]:
    """What a table answers whose history is tagged, branched, rolled back, undone, restored, cleaned and repaired."""
    clock = catalog.clock
    assert isinstance(clock, FixedClock)
    first, second = "2023-10-01", "2023-11-01"
    table = created(catalog, bucket="1", **{"changelog-producer": "none", "snapshot.num-retained.min": "1"})
    answers: list[Any] = []

    def note(*found: object) -> None:
        answers.append((*found, snapshots.list_ids(table.store), len(content(table))))

    for number, part in enumerate((first, second, first)):
        table.write(rows(range(number, number + 10), f"{number}-", part))
    note(table.create_tag("v1", 2).tagged, table.create_tag("v2").tagged)
    table.rename_tag("v2", "newest")
    note(sorted(table.tags()), table.to_arrow(tag="v1").num_rows)
    dev = table.create_branch("dev", from_tag="v1")
    dev.write(rows(range(50, 55), "d", first))
    note(dev.compact(full=True).files_in, len(content(dev)), len(content(catalog.table("db.t$branch_dev"))))
    back = table.rollback_to("v1")
    note(back.snapshot_id, sorted(table.tags()))
    assert back.trash_id is not None
    note(table.restore(back.trash_id).restored)
    table.rollback_to(2)
    table.write(rows(range(5), "y", second))
    before = content(table)
    compacted = table.compact(full=True)
    assert compacted.run_id is not None
    undone = table.undo(compacted.run_id)
    note(compacted.files_in, compacted.files_out, undone.changed, content(table) == before)
    expired = table.expire_snapshots(retain_max=1, retain_min=1)
    assert expired.trash_id is not None
    note(len(expired.expired), len(expired.held), table.restore(expired.trash_id).changed)
    note(table.expire_snapshots(retain_max=1, retain_min=1).files_recorded > 0)
    note(table.fast_forward("dev").changed, table.branches())
    note(table.delete_branch("dev").changed, table.branches(), table.delete_tag("v1").changed, sorted(table.tags()))
    dropped = table.expire_partitions(
        older_than_ms=1_697_000_000_000, strategy="values-time", timestamp_formatter="yyyy-MM-dd"
    )
    note(list(dropped.expired), sorted({row[0] for row in content(table)}))
    io, root = catalog.file_io, table.store.root
    stray = f"{root}/p={second}/bucket-0/data-{uuid.uuid4()}-0.parquet"
    io.overwrite(stray, b"left by a crash")
    found = table.remove_orphan_files(older_than_ms=clock.now_ms(), max_share=100)
    note(found.files_recorded, io.exists(stray))
    io.overwrite(f"{table.store.snapshot_dir}/LATEST", b"1")
    note(table.apply(table.plan_maintenance("repair")).changed, io.read_bytes(f"{table.store.snapshot_dir}/LATEST"))
    swept = table.sweep_trash(now_ms=clock.now_ms() + 9 * DAY)
    note(swept.files_deleted, swept.files_missing, io.exists(stray), len(list(swept.failed)))
    note([entry.action for entry in table.ledger()], content(table))
    return answers


def test_a_tables_history_in_a_store_is_kept_and_cleaned_as_on_a_disk(s3: S3Server, tmp_path: Path) -> None:
    """Tags, branches, rollback, undo, restored deletions, partition expiry, orphans and repair: the same answers from both."""
    now = FixedClock(int(time.time() * 1000) + DAY // 24)  # stores date their objects themselves
    there = history(Catalog(f"{s3.bucket()}/house", s3.options, clock=now))
    assert there == history(Catalog(str(tmp_path / "local"), clock=now))


def test_a_catalog_in_a_store_makes_lists_and_drops(house: Catalog) -> None:
    assert house.list_databases() == []
    with pytest.raises(errors.DatabaseNotFound):
        house.list_tables("db")
    table = created(house)
    with pytest.raises(errors.TableExists):
        created(house)
    assert (house.list_databases(), house.list_tables("db")) == (["db"], ["t"])
    assert table.store.root == f"{house.root}/db.db/t"
    with pytest.raises(errors.UnsupportedFeature, match="renaming in an object store"):
        house.rename_table("db.t", "db.u")
    table.write(rows(range(3), "a"))
    with pytest.raises(errors.DatabaseExists):
        house.drop_database("db")
    house.drop_table("db.t")
    assert house.list_tables("db") == []
    assert house.list_databases() == ["db"]
    house.drop_database("db")
    assert house.list_databases() == []
    assert files(house.file_io, house.root) == {}


def test_tables_and_messages_travel_to_other_processes(house: Catalog, s3: S3Server) -> None:
    table = created(house)
    there: Table = pickle.loads(pickle.dumps(table))
    with there.new_write() as writer:
        writer.write(rows(range(4), "a"))
        messages = [CommitMessage.from_bytes(item.to_bytes()) for item in writer.prepare_commit()]
    assert TableStore.from_json(table.store.to_json()).file_io == table.store.file_io
    assert Table(TableStore.from_json(table.store.to_json())).new_commit().commit(messages) == 1
    assert len(content(table)) == 4


def test_the_command_line_looks_after_a_table_in_a_store(
    house: Catalog, s3: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("DREDGE_WAREHOUSE", house.root)
    table = created(house)
    for number in range(3):
        table.write(rows(range(10), f"{number}-"))
    assert run(["status"]) == 0
    printed = capsys.readouterr().out
    assert "db.t" in printed
    assert "conditional put" in printed
    assert run(["compact", "db.t", "--full"]) == 0
    assert run(["tables", "--warehouse", f"{house.root}/nothing-here"]) != 0
    monkeypatch.delenv("DREDGE_WAREHOUSE")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    there = ["--warehouse", house.root, "--catalog-option", f"s3.endpoint={s3.endpoint}"]
    capsys.readouterr()
    for verb, message in (
        (["tables"], "db.t"),
        (["health", "db.t"], "bucket"),
        (["tag", "create", "db.t", "v1"], "names snapshot 4"),
        (["tag", "list", "db.t"], "v1"),
        (["expire", "db.t", "--retain-max", "1", "--retain-min", "1"], "expired snapshots 1 to 3"),
        (["trash", "db.t"], "expire-1-3"),
        (["ledger", "db.t"], "expire_snapshots"),
        (["orphans", "db.t", "--dry-run"], "orphan"),
        (["holds", "db.t"], "v1"),
    ):
        assert run([*verb, *there]) == 0, (verb, capsys.readouterr())
        assert message in capsys.readouterr().out, verb
    assert table.latest_snapshot().commit_kind == "COMPACT"  # type: ignore[union-attr]


def test_a_compaction_looks_at_the_table_three_times_and_reads_each_manifest_once(house: Catalog, s3: S3Server) -> None:
    """Before it plans, before it begins, and before it commits; nothing is asked bucket by bucket."""
    writer = created(house, **{"bucket": "4", "changelog-producer": "none"})
    for number in range(4):
        writer.write(rows(range(number, number + 40), f"{number}-"))
    table = house.table("db.t")
    s3.requests()
    report = table.compact(full=True)
    assert (report.files_in, report.files_out) == (16, 4)
    asked = s3.requests()
    about = [(line["method"], line["path"].rpartition("/")[2]) for line in asked]
    assert about.count(("GET", "LATEST")) == 3
    manifests = [name for method, name in about if method == "GET" and name.startswith("manifest-")]
    assert len(manifests) == len(set(manifests)) == 4 + 2
    data = [name for _, name in about if name.startswith("data-")]
    assert len(data) == 16 + 2 * 4  # inputs are read, outputs put and read again by the verification
    assert len(about) - len(data) <= 30  # two of them see that the table was not replaced since
    s3.requests()
    table.to_arrow()
    assert len(s3.requests()) <= 4 + 4  # it knows the manifests that it has just written


# -- stores that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_commit_whose_snapshot_was_put_twice_is_one_commit(house: Catalog, s3: S3Server, mode: str) -> None:
    """The first answer is lost, the second says that the snapshot exists: it is the commit's own."""
    table = created(house)
    table.write(rows(range(5), "a"))
    s3.fail("PUT", "snapshot/snapshot-2", mode=mode)
    assert table.write(rows(range(3, 8), "b")) == 2
    assert snapshots.list_ids(table.store) == [1, 2]
    assert len(content(table)) == 8


def test_a_commit_that_never_gets_an_answer_is_unknown_and_a_retry_finds_it(
    house: Catalog, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.storage.object_store._RETRIES", 0)
    table = Catalog(house.root, s3.options).table(created(house, **{"commit.max-retries": "1"}).name)
    for mode, expected in (("before", []), ("after", [1])):
        writer = table.new_stream_write("job")
        writer.write(rows(range(5), "a"))
        messages = writer.prepare_commit(commit_identifier=7)
        s3.fail("PUT", "snapshot/snapshot-1", mode=mode, times=9)
        if mode == "before":
            with pytest.raises(errors.CommitUnknown):
                table.new_stream_commit("job").filter_and_commit({7: messages})
        else:  # no put was answered, but the object tells who put it
            assert table.new_stream_commit("job").filter_and_commit({7: messages}) == [1]
        s3.fail("PUT", "", mode="before", times=0)
        assert snapshots.list_ids(table.store) == expected
        writer.close()
    assert table.new_stream_commit("job").filter_and_commit({7: []}) == []
    assert len(content(table)) == 5


def _written(table: Table) -> object:
    return table.write(rows(range(3, 9), "new"))


def _compacted(table: Table) -> object:
    return table.compact(full=True)


def _expired(table: Table) -> object:
    return table.expire_snapshots(retain_max=1, retain_min=1)


def _tagged(table: Table) -> object:
    return table.create_tag("v1", replace=True)


def _rolled_back(table: Table) -> object:
    return table.rollback_to(1)


@strides(197)
@pytest.mark.parametrize(
    ("act", "mode"),
    [
        (_written, "after"),
        (_compacted, "before"),
        *(
            pytest.param(act, mode, marks=(pytest.mark.soak, pytest.mark.timeout(7200)))
            for act in (_written, _compacted, _expired, _tagged, _rolled_back)
            for mode in ("before", "after")
            if (act, mode) not in ((_written, "after"), (_compacted, "before"))
        ),
    ],
)
def test_a_store_that_fails_at_any_step_loses_nothing(
    house: Catalog, act: Callable[[Table], object], mode: Mode, stride: int
) -> None:
    """Reads are those before or after, and the same statement run again succeeds: each failure has a table of its own."""
    house.create_database("db")

    def prepared(name: str) -> Table:
        table = created(house, name, **{"commit.max-retries": "2"})
        for number in range(2):
            table.write(rows(range(number, number + 5), f"{number}-"))
        return table

    def through(table: Table, file_io: FileIO) -> Table:
        store = TableStore.open(table.store.file_io, table.store.root, table.name, house.clock)
        store.file_io = file_io
        return Table(store)

    counted = FaultyFileIO(house.file_io)
    act(through(prepared("db.count"), counted))
    assert counted.steps >= 12
    expected = content(house.table("db.count"))
    for step in range(1, counted.steps + 1, stride):
        table = prepared(f"db.t{step}")
        before = content(table)
        faulty = FaultyFileIO(house.file_io, step, mode)
        outcome = outcome_of(partial(act, through(table, faulty)))
        where = (act.__name__, mode, step, faulty.log[step - 1], outcome)
        found = content(table)
        assert found in (before, expected), where
        if outcome == "succeeded":
            assert found == expected, where
        act(house.table(table.name))
        assert content(table) == expected, where


# -- several at once ---------------------------------------------------------------------------------------------------

_WRITER = """
import json, sys
import pyarrow as pa
from lsm_core import Catalog
root, endpoint, user, commits = sys.argv[1:]
table = Catalog(root, {"s3.endpoint": endpoint}).table("db.t")
fields = table.schema.arrow_schema
ids = []
for number in range(int(commits)):
    key = int(user) * 1000 + number
    ids.append(table.write(pa.table([["a"], [key], [str(key)]], schema=fields)))
print(json.dumps(ids))
"""


@pytest.mark.parametrize(
    ("processes", "commits"),
    [(2, 3), pytest.param(8, 25, marks=(pytest.mark.soak, pytest.mark.timeout(1800)))],
)
def test_processes_that_commit_at_once_lose_nothing(house: Catalog, s3: S3Server, processes: int, commits: int) -> None:
    """Writers, a compactor and an expirer: every snapshot is whole when it is read, and the end holds what all wrote."""
    # Who loses a race loses it to a commit of another writer, or of the compactor, which makes fewer.
    options = {"commit.max-retry-wait": "200 ms", "snapshot.num-retained.min": "5"}
    options["commit.max-retries"] = str(2 * processes * commits)
    table = created(house, **options)
    commands = [[str(user), str(commits)] for user in range(processes)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, house.root, s3.endpoint, *arguments],
            cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, text=True,
        )
        for arguments in commands
    ]  # fmt: skip
    seen: dict[int, int] = {}
    try:
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(lambda: [worker.communicate(timeout=1200)[0] for worker in workers])
            while not ended.done():
                refusal_of(table.compact)
                refusal_of(lambda: table.expire_snapshots(retain_max=10, retain_min=5))
                newest = snapshots.latest_id(table.store)
                if newest is not None and newest not in seen:
                    seen[newest] = table.to_arrow(snapshot_id=newest).num_rows
                time.sleep(0.3)
            printed = ended.result()
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.returncode == 0 for worker in workers), printed
    assert [seen[number] for number in sorted(seen)] == sorted(seen.values())
    expected = {1000 * user + number for user in range(processes) for number in range(commits)}
    assert sorted(row[1] for row in content(table)) == sorted(expected)


@pytest.mark.parametrize("fate", ["dropped or renamed", "replaced"])
def test_a_handle_of_a_lost_table_reads_and_writes_nothing(s3: S3Server, fate: str) -> None:
    house = Catalog(f"{s3.bucket()}/house", s3.options)  # two tables differ by the time of their creation
    table = created(house)
    table.write(rows(range(3), "a"))
    with table.new_write() as writer:
        writer.write(rows(range(3, 6), "b"))
        messages = writer.prepare_commit()
    stream = table.new_stream_write("job")
    stream.write(rows(range(6, 9), "c"))
    house.drop_table("db.t")
    if fate == "replaced":
        created(house).write(rows(range(1), "new"))
    before = files(house.file_io, house.root)
    for call in (
        lambda: table.to_arrow(),
        lambda: table.write(rows(range(3), "d")),
        lambda: table.compact(full=True),
        lambda: table.create_tag("tag"),
        lambda: table.new_commit().commit(messages),
        lambda: table.new_stream_commit("job").commit(stream.prepare_commit(), 1),
    ):
        with pytest.raises(errors.TableNotFound, match=f"was {fate} since it was opened"):
            call()
    stream.close()
    assert files(house.file_io, house.root) == before
