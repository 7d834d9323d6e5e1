"""Warehouses behind Paimon's own REST catalog server: Java, pypaimon and Dredge are its clients and take turns."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.cli.app import run
from lsm_core.clock import SystemClock
from lsm_core.errors import (
    CommitUnknown,
    DatabaseNotFound,
    DredgeError,
    InvalidOption,
    InvalidSchema,
    MetastoreFailed,
    PlanStale,
    SnapshotNotFound,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.read.table_versions import with_schema
from lsm_core.table.definition import as_definition, new_table_schema
from lsm_core.table.names import TableName
from lsm_core.table.rest_client import RestClient
from lsm_core.table.rest_keys import ServedKeys
from lsm_core.table.rest_metastore import RestPublisher
from lsm_core.table.schema_change import SchemaChange
from lsm_core.table.system import GLOBAL_TABLES, SYSTEM_TABLES
from tests.interop.test_turns import KINDS, LANES, Java, Turns, live_a_life
from tests.support.clocks import replace_sleep
from tests.support.peers import JavaPaimon, PyPaimon, PyPaimonProcess
from tests.support.rest_server import TOKEN, WAREHOUSE, Fault, FaultyProxy, RestServer, start_server

pytestmark = pytest.mark.paimon_java
ROWS = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
LIVES = int(os.environ.get("DREDGE_REST_LIVES", "60"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """Yield the running server of one warehouse."""
    running = start_server(tmp_path_factory.mktemp("served"))
    yield running
    running.close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set the token, and a folder for saved plans."""
    monkeypatch.setenv("DREDGE_REST_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")


@pytest.fixture
def proxy(server: RestServer) -> Iterator[FaultyProxy]:
    """Yield a proxy in front of the server."""
    running = FaultyProxy(server.url)
    yield running
    running.close()


def open_house(url: str, **options: str) -> Catalog:
    """Return the served warehouse as Dredge's catalog."""
    return Catalog(WAREHOUSE, {"metastore": "rest", "uri": url, **options})


@pytest.fixture
def house(server: RestServer, request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """Yield the served warehouse with the empty database `db`, which is dropped at the end."""
    catalog = open_house(server.url)
    catalog.create_database("db", ignore_if_exists=True)
    yield catalog
    catalog.drop_database("db", ignore_if_not_exists=True, cascade=True)


@pytest.fixture
def java_house(java_session: JavaPaimon, server: RestServer, tmp_path: Path) -> Java:
    """Return a function that calls Java, whose catalog is the server's."""
    options = {"metastore": "rest", "uri": server.url, "warehouse": WAREHOUSE}
    options |= {"token.provider": "bear", "token": TOKEN}

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(java_session.call(op, **{"warehouse": str(tmp_path), "table": "db.t", **arguments}))

    for lane in range(LANES + 1):
        call("catalog_open", options=options, lane=lane)
    return call


def create(catalog: Catalog, name: str = "db.t", **options: str) -> Table:
    """Create a table with a primary key."""
    return catalog.create_table(name, FIELDS, primary_keys=["k"], options={"bucket": "1", **options})


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return a table's rows, sorted."""
    return table.to_arrow().sort_by("k").to_pylist()


# -- databases and tables, both ways ---------------------------------------------------------------------------------


def test_java_and_dredge_share_the_server(house: Catalog, java_house: Java) -> None:
    table = create(house)
    table.write(ROWS)
    assert java_house("catalog_tables", database="db")["names"] == ["t"]
    assert [(row["k"], row["v"]) for row in java_house("read")["rows"]] == [(1, "a"), (2, "b"), (3, "c")]
    java_house("write", rows=[{"k": 2, "v": "java"}, {"k": 4, "v": "d"}], compact="none")
    java_house("alter", changes=[{"change": "add_column", "name": "w", "type": "INT"}])
    assert rows_of(house.table("db.t"))[1] == {"k": 2, "v": "java", "w": None}
    changes = [
        SchemaChange.rename_column("v", "text"),
        SchemaChange.add_column("x", pa.decimal128(8, 2), first=True, comment="x"),
        SchemaChange.update_type("w", pa.int64()),
        SchemaChange.update_column_comment("w", "wide"),
        SchemaChange.update_default("w", "7"),
        SchemaChange.move("w", after="k"),
        SchemaChange.set_option("snapshot.num-retained.max", "20"),
        SchemaChange.set_comment("ours"),
    ]
    house.alter_table("db.t", changes)
    altered = house.table("db.t")
    assert altered.schema.field_names == ("x", "k", "w", "text") and altered.schema.comment == "ours"
    fields = java_house("schema")["schema"]["fields"]
    assert [field["name"] for field in fields] == list(altered.schema.field_names)
    assert {field["name"]: field["type"] for field in fields}["w"] == "BIGINT"
    java_house("catalog_rename", to="db.moved")
    assert house.list_tables("db") == ["moved"]
    house.rename_table("db.moved", "db.t")
    assert len(java_house("read")["rows"]) == 4
    house.drop_table("db.t")
    assert java_house("catalog_tables", database="db")["names"] == [] == house.list_tables("db")


def test_objects_that_are_missing_or_taken(house: Catalog) -> None:
    create(house)
    with pytest.raises(TableExists):
        create(house)
    assert house.create_table("db.t", FIELDS, ignore_if_exists=True).name == "db.t"
    with pytest.raises(TableNotFound, match="database db has: t"):
        house.table("db.other")
    with pytest.raises(DatabaseNotFound, match="nowhere"):
        house.table("nowhere.t")
    with pytest.raises(DatabaseNotFound, match="nowhere"):
        house.list_tables("nowhere")
    create(house, "db.second")
    with pytest.raises(TableExists):
        house.rename_table("db.t", "db.second")
    with pytest.raises(InvalidSchema, match="no_such"):
        house.alter_table("db.t", [SchemaChange.drop_column("no_such")])
    assert house.list_tables("db") == ["second", "t"]


def test_a_dropped_table_takes_no_commit(house: Catalog) -> None:
    table = create(house)
    table.write(ROWS)
    house.drop_table("db.t")
    fresh = create(house)
    with pytest.raises(TableNotFound):
        table.write(ROWS)
    assert fresh.to_arrow().num_rows == 0


def test_a_description_that_was_read_ahead_may_be_outdated(house: Catalog) -> None:
    create(house)
    other = open_house(house.options.address)
    other.read_ahead("db")
    house.drop_table("db.t")
    with pytest.raises(TableNotFound, match=r"db\.t is not in"):
        other.table("db.t")


def test_many_tables_take_few_requests(house: Catalog, proxy: FaultyProxy) -> None:
    for number in range(250):
        house._metastore.create_table(TableName("db", f"t{number}"), first_schema())
    seen = open_house(proxy.url)
    seen.list_databases()
    proxy.requests.clear()
    assert len(seen.list_tables("db")) == 250
    # The server gives 100 names a page, whatever is asked for.
    assert len(proxy.requests) <= 1 + 3


def first_schema() -> TableSchema:
    """Return the first schema of a table with a key."""
    definition = as_definition("db.t", FIELDS, ["k"], [], {"bucket": "1"}, None)
    return new_table_schema(definition, "db.t", SystemClock())


# -- maintenance -----------------------------------------------------------------------------------------------------


def test_maintenance_commits_through_the_server(house: Catalog, java_house: Java, proxy: FaultyProxy) -> None:
    create(house)
    table = open_house(proxy.url).table("db.t")
    for _ in range(4):
        table.write(ROWS)
    proxy.requests.clear()
    report = table.compact(full=True)
    assert report.changed
    commits = [path for method, path in proxy.requests if method == "POST" and path.endswith("/commit")]
    assert len(commits) == 1
    assert len(proxy.requests) <= 3
    table.create_tag("kept")
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert len(java_house("read")["rows"]) == 3
    java_house("write", rows=[{"k": 9, "v": "later"}], compact="none")
    assert len(rows_of(table.refresh())) == 4


def test_snapshots_have_a_uuid(house: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of Paimon 2 compare it with the base of the next commit; the server of the tests drops it."""
    sent, publish = [], RestPublisher.publish

    def record(self: RestPublisher, snapshot: Snapshot, *others: Any) -> bool:
        sent.append(snapshot.uuid)
        return publish(self, snapshot, *others)

    monkeypatch.setattr(RestPublisher, "publish", record)
    table = create(house)
    for _ in range(2):
        table.write(ROWS)
    assert table.compact(full=True).changed
    assert all(sent) and len(set(sent)) == 3


def test_rollback_is_the_servers(house: Catalog, java_house: Java) -> None:
    table = create(house)
    for number in range(3):
        table.write(ROWS.slice(0, number + 1))
    report = table.apply(table.plan_maintenance("rollback", snapshot_id=1))
    assert report.rolled_back_to == 1 and report.snapshots == (2, 3)
    assert not any("dredge.delete-mode" in line for line in report.lines("db.t"))
    assert rows_of(table.refresh()) == [{"k": 1, "v": "a"}]
    java_house("write", rows=[{"k": 5, "v": "java"}], compact="none")
    assert [row["k"] for row in rows_of(table.refresh())] == [1, 5]
    table.refresh().write(ROWS)
    assert len(java_house("read")["rows"]) == 4
    with pytest.raises(SnapshotNotFound):
        table.plan_maintenance("rollback", snapshot_id=77)


def test_branches_are_the_servers(house: Catalog, java_house: Java) -> None:
    house.create_database("branched")  # which the server goes on to list under the table's name
    table = create(house, "branched.t")
    table.write(ROWS)
    table.create_tag("first")
    branch = table.create_branch("dev", from_tag="first")
    branch.write(pa.table({"k": pa.array([8], pa.int64()), "v": ["branch"]}))
    assert [row["k"] for row in java_house("read", table="branched.t$branch_dev")["rows"]] == [1, 2, 3, 8]
    assert len(rows_of(house.table("branched.t"))) == 3
    assert house.table("branched.t$branch_dev").to_arrow().num_rows == 4
    with pytest.raises(TableExists):
        table.create_branch("dev", from_tag="first")
    with pytest.raises(InvalidOption, match="from_tag"):
        table.create_branch("other", from_snapshot=1)
    table.write(pa.table({"k": pa.array([9], pa.int64()), "v": ["main"]}))
    report = table.apply(table.plan_maintenance("fast_forward", branch="dev"))
    assert report.branch == "dev" and report.latest == 2
    assert [row["k"] for row in java_house("read", table="branched.t")["rows"]] == [1, 2, 3, 8]
    table.refresh().write(pa.table({"k": pa.array([10], pa.int64()), "v": ["later"]}))
    java_house("write", table="branched.t", rows=[{"k": 11, "v": "java"}], compact="none")
    assert [row["k"] for row in rows_of(table.refresh())] == [1, 2, 3, 8, 10, 11]
    deleted = table.apply(table.plan_maintenance("delete_branch", branch="dev"))
    assert deleted.lines("branched.t")[0] == "branch dev is deleted"
    assert table.branches() == []
    with pytest.raises(TableNotFound, match="dev"):
        house.table("branched.t$branch_dev")
    for work in (lambda: table.plan_maintenance("repair"), lambda: table.rename_branch("dev", "other")):
        with pytest.raises((UnsupportedFeature, TableNotFound)):
            work()


def test_copies_into_and_out_of_the_warehouse(
    house: Catalog, java_house: Java, proxy: FaultyProxy, tmp_path: Path
) -> None:
    create(house)
    table = open_house(proxy.url).table("db.t")
    for number in range(3):
        table.write(ROWS.slice(number))
    table.delete("k = 3")
    folder = Path(table.store.root)
    with pytest.raises(UnsupportedFeature, match="catalog server"):
        table.plan_maintenance("copy_table", target="db.copy", target_warehouse=str(folder.parents[1]))
    with pytest.raises(InvalidOption, match="another table"):
        table.plan_maintenance("copy_table", target="db.t")
    plan = table.plan_maintenance("copy_table", target="db.copy")
    assert house.list_tables("db") == ["t"]
    proxy.faults.append(Fault("POST", "/commit", "cut-after"))
    report = table.apply(plan)
    assert report.changed and report.files == 4 and report.verification == "V1"
    copied = house.table("db.copy")
    assert rows_of(copied) == rows_of(table) and Path(copied.store.root) != folder
    java_house("write", table="db.copy", rows=[{"k": 7, "v": "java"}], compact="none")
    assert [row["k"] for row in java_house("read", table="db.copy")["rows"]] == [1, 2, 7]
    assert copied.refresh().compact(full=True).changed and rows_of(table)[-1]["k"] == 2
    with pytest.raises(TableExists):
        table.plan_maintenance("copy_table", target="db.copy")
    house.alter_table("db.t", [SchemaChange.add_column("w", pa.int32())])
    altered = house.table("db.t")
    with pytest.raises(UnsupportedFeature, match="compact the table fully"):
        altered.plan_maintenance("copy_table", target="db.later")
    altered.compact(full=True)
    altered.write(pa.table({"k": pa.array([5], pa.int64()), "v": ["e"], "w": pa.array([5], pa.int32())}))
    altered.compact(full=True)
    later = altered.plan_maintenance("copy_table", target="more.later")
    assert altered.apply(later).changed
    assert rows_of(house.table("more.later")) == rows_of(altered)
    assert not altered.apply(later).changed, "the same copy again changes nothing"
    house.drop_database("more", cascade=True)
    create(house, "db.empty")
    empty = house.table("db.empty")
    assert empty.apply(empty.plan_maintenance("copy_table", target="db.second")).changed
    assert house.table("db.second").to_arrow().num_rows == 0
    with pytest.raises(PlanStale, match="altered"):
        table.plan_maintenance("copy_table", target="db.copy", target_warehouse=str(tmp_path))
    plan = altered.plan_maintenance("copy_table", target="db.copy", target_warehouse=str(tmp_path))
    assert altered.apply(plan).changed
    assert Catalog(str(tmp_path)).table("db.copy").to_arrow().num_rows == 3


def test_records_from_before_the_server_are_not_restored(house: Catalog, tmp_path: Path) -> None:
    """The server would not learn of the snapshots that the undo of a rollback writes."""
    table = create(house)
    for _ in range(3):
        table.write(ROWS)
    folder = Catalog(str(Path(table.store.root).parents[1])).table("db.t")  # as before the server
    trash_id = folder.apply(folder.plan_maintenance("rollback", snapshot_id=2)).trash_id
    with pytest.raises(UnsupportedFeature, match="a restore of rollback-2"):
        table.plan_maintenance("restore", trash_id=trash_id)
    plan = folder.plan_maintenance("restore", trash_id=trash_id)
    with pytest.raises(UnsupportedFeature, match="a restore of rollback-2"):
        table.apply(plan)


def test_every_view_of_a_table_commits_through_the_server(house: Catalog) -> None:
    table = create(house)
    table.write(ROWS)
    store = table.store
    house.alter_table("db.t", [SchemaChange.add_column("w", pa.int32())])
    newer = with_schema(house.store("db.t"), 0)
    views = (store.copy({"write-only": "true"}), store.refresh(), store.with_buckets(2), newer)
    assert all(view.publisher is store.publisher for view in views[:3]) and newer.publisher is not None
    assert pickle.loads(pickle.dumps(store)).publisher is not None


@pytest.mark.pypaimon
def test_pypaimon_java_and_dredge_share_the_server(
    house: Catalog,
    server: RestServer,
    java_house: Java,
    pypaimon_session: PyPaimonProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    options = {"metastore": "rest", "uri": server.url, "token.provider": "bear", "token": TOKEN}
    peer = PyPaimon(pypaimon_session, Path(WAREHOUSE), tmp_path_factory.mktemp("peer"), options)
    table = create(house)
    table.write(ROWS)
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    peer.write("db.t", pa.table({"k": [3, 4], "v": ["peer", "peer"]}, schema=fields))
    java_house("write", rows=[{"k": 5, "v": "java"}], compact="none")
    table.compact(full=True)
    expected = [(1, "a"), (2, "b"), (3, "peer"), (4, "peer"), (5, "java")]
    assert [tuple(row.values()) for row in peer.read("db.t").sort_by("k").to_pylist()] == expected
    assert [(row["k"], row["v"]) for row in java_house("read")["rows"]] == expected
    assert [tuple(row.values()) for row in rows_of(table)] == expected


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut-before", "cut-after", "500-before", "500-after", "503-before", "502-after"])
def test_a_commit_whose_answer_is_lost_happens_once(house: Catalog, proxy: FaultyProxy, kind: str) -> None:
    create(house)
    table = open_house(proxy.url).table("db.t")
    table.write(ROWS.slice(0, 1))
    proxy.faults.append(Fault("POST", "/commit", kind, headers={"Retry-After": "0"}))
    table.write(ROWS)
    assert rows_of(table) == ROWS.to_pylist()
    assert [line["snapshot_id"] for line in house.table("db.t$snapshots").to_arrow().to_pylist()] == [1, 2]


def test_a_commit_that_stays_unknown_deletes_nothing(house: Catalog, proxy: FaultyProxy) -> None:
    create(house, **{"commit.max-retries": "1", "commit.min-retry-wait": "1 ms"})
    table = open_house(proxy.url).table("db.t")
    proxy.faults.append(Fault("POST", "/commit", "cut-before", times=9))
    with pytest.raises(CommitUnknown):
        table.write(ROWS)
    folder = Path(table.store.root)
    assert list(folder.glob("bucket-0/*.parquet"))
    proxy.faults.clear()
    table.write(ROWS)
    assert rows_of(table) == ROWS.to_pylist()


@pytest.mark.parametrize("later", ["403-before", "404-before", "409-before", "401-before"])
def test_a_refusal_after_a_lost_answer_deletes_nothing(house: Catalog, proxy: FaultyProxy, later: str) -> None:
    """The first request may still be under way when the server refuses the second one."""
    create(house, **{"commit.min-retry-wait": "1 ms"})
    table = open_house(proxy.url).table("db.t")
    for _ in range(3):
        table.write(ROWS)
    proxy.faults += [Fault("POST", "/commit", "cut-before"), Fault("POST", "/commit", later)]
    with pytest.raises(CommitUnknown):
        table.compact(full=True)
    assert len(list(Path(table.store.root).glob("bucket-0/*.parquet"))) == 4
    proxy.faults += [Fault("POST", "/commit", "500-after"), Fault("POST", "/commit", later)]
    assert table.compact(full=True).changed  # published, which the second request does not change
    assert rows_of(table) == ROWS.to_pylist()


def test_an_answer_without_meaning_to_a_commit_is_looked_up(house: Catalog, proxy: FaultyProxy) -> None:
    create(house)
    table = open_house(proxy.url).table("db.t")
    proxy.faults.append(Fault("POST", "/commit", "200-after", data=b"<html>sign in</html>"))
    table.write(ROWS)
    assert rows_of(table) == ROWS.to_pylist()


@pytest.mark.parametrize("kind", ["cut-after", "cut-before", "500-after"])
def test_changes_of_the_catalog_are_looked_up(house: Catalog, proxy: FaultyProxy, kind: str) -> None:
    seen = open_house(proxy.url)
    proxy.faults.append(Fault("POST", "/tables", kind))
    create(seen)
    proxy.faults.append(Fault("POST", "/tables/t", kind))
    seen.alter_table("db.t", [SchemaChange.add_column("w", pa.int32())])
    assert seen.table("db.t").schema.field_names == ("k", "v", "w")
    proxy.faults.append(Fault("POST", "/tables/rename", kind))
    seen.rename_table("db.t", "db.u")
    assert seen.list_tables("db") == ["u"]
    proxy.faults.append(Fault("DELETE", "/tables/u", kind))
    seen.drop_table("db.u")
    assert seen.list_tables("db") == []
    proxy.faults.append(Fault("POST", "/databases", kind))
    seen.create_database("more")
    proxy.faults.append(Fault("DELETE", "/databases/more", kind))
    seen.drop_database("more")
    assert "more" not in seen.list_databases()


def test_readings_are_repeated_while_the_server_is_busy(house: Catalog, proxy: FaultyProxy) -> None:
    seen = open_house(proxy.url)
    seen.list_databases()
    proxy.faults.append(Fault("GET", "/databases", "503-before", times=2, headers={"Retry-After": "0"}))
    assert "db" in seen.list_databases()
    proxy.faults.append(Fault("GET", "/databases", "cut-before", times=1))
    assert "db" in seen.list_databases()


def test_a_token_that_ends_in_the_middle_of_a_compaction(
    house: Catalog, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    monkeypatch.delenv("DREDGE_REST_TOKEN")
    monkeypatch.setenv("DREDGE_REST_TOKEN_FILE", str(file))
    create(house)
    table = open_house(proxy.url).table("db.t")
    for _ in range(3):
        table.write(ROWS)
    file.write_text("ended")
    with pytest.raises(MetastoreFailed, match="DREDGE_REST_TOKEN_FILE"):
        table.compact(full=True)
    file.write_text(TOKEN)
    files = set(Path(table.store.root).glob("bucket-0/*"))
    assert len(files) == 3, "the outputs of the refused compaction are deleted"
    table.compact(full=True)
    assert rows_of(table) == ROWS.to_pylist()
    assert TOKEN.encode() not in b"".join(
        path.read_bytes() for path in Path(table.store.root).rglob("*") if path.is_file()
    )


def test_wrong_addresses_warehouses_and_tokens(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MetastoreFailed, match="warehouse 'other'"):
        Catalog("other", {"metastore": "rest", "uri": server.url}).list_databases()
    assert Catalog(f"rest:{server.url}", {"warehouse": WAREHOUSE}).list_databases() is not None
    with pytest.raises(InvalidOption, match="DREDGE_REST_TOKEN"):
        open_house(server.url, token=TOKEN)
    monkeypatch.setenv("DREDGE_REST_TOKEN", "wrong")
    with pytest.raises(MetastoreFailed, match="does not accept the token"):
        open_house(server.url).list_databases()
    replace_sleep(monkeypatch, "lsm_core.table.rest_client", lambda seconds: None)
    client = RestClient("http://127.0.0.1:9", WAREHOUSE)
    client._sleep = lambda seconds: None
    with pytest.raises(MetastoreFailed, match="cannot be reached"):
        client.get("databases")


def test_the_command_line_looks_after_a_served_table(
    house: Catalog, server: RestServer, capsys: pytest.CaptureFixture[str]
) -> None:
    table = create(house)
    for _ in range(3):
        table.write(ROWS)
    place = ["-w", f"rest:{server.url}", "--catalog-option", f"warehouse={WAREHOUSE}"]
    assert run(["doctor", *place]) == 0
    printed = capsys.readouterr().out
    assert house.place in printed and "state/dredge" not in printed
    for words in (["tables"], ["status"], ["compact", "db.t", "--full"], ["verify", "db.t"], ["doctor", "db.t"]):
        assert run([words[0], *words[1:], *place]) == 0, words
        printed = capsys.readouterr()
        assert TOKEN not in printed.out + printed.err
    assert rows_of(table.refresh()) == ROWS.to_pylist()


# -- turns -----------------------------------------------------------------------------------------------------------


class ServedTurns(Turns):
    """Turns on a table of the server."""

    url = ""

    @property
    def table(self) -> Table:
        """The table, opened anew."""
        return open_house(self.url).table(self.name)


def live(seeds: range, server: RestServer, java_house: Java, warehouse: Path) -> int:
    """Let Java and Dredge take turns on one table per seed; return the number of tables that Dredge serves."""
    taking = type("OnThisServer", (ServedTurns,), {"url": server.url})
    lives = [
        live_a_life(seed, KINDS[seed % len(KINDS)], warehouse, partial(java_house, lane=1), taking) for seed in seeds
    ]
    return sum(not refused for refused in lives)


@pytest.mark.usefixtures("house")
def test_java_and_dredge_take_turns_behind_the_server(server: RestServer, java_house: Java, tmp_path: Path) -> None:
    assert live(range(0, 33, 16), server, java_house, tmp_path) >= 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("house")
def test_many_turns_behind_the_server(server: RestServer, java_house: Java, tmp_path: Path) -> None:
    assert live(range(1000, 1000 + LIVES), server, java_house, tmp_path) >= LIVES // 2


def test_errors_are_ours(house: Catalog, proxy: FaultyProxy) -> None:
    """Whatever the server answers, an error of Dredge is raised."""
    create(house)
    seen = open_house(proxy.url)
    seen.list_databases()
    for status in ("400", "404", "405", "409", "418", "501"):
        proxy.faults[:] = [Fault("GET", "/databases", f"{status}-before", times=99)]
        for call in (lambda: seen.table("db.t"), lambda: seen.list_tables("db"), seen.list_databases):
            with pytest.raises(DredgeError):
                call()
        proxy.faults[:] = [Fault("POST", "/", f"{status}-before", times=99)]
        for call in (lambda: create(seen, "db.new"), lambda: house.table("db.t") and seen.table("db.t").write(ROWS)):
            with pytest.raises(DredgeError):
                call()
        proxy.faults.clear()
    assert rows_of(house.table("db.t")) == []


def test_what_the_server_forbids_is_one_line(server: RestServer, house: Catalog) -> None:
    house.create_database("closed")
    create(house, "closed.t").write(ROWS)
    opened = house.table("closed.t")
    server.tell("forbid-table closed.t")
    with pytest.raises(MetastoreFailed, match="forbids") as raised:
        house.table("closed.t")
    assert "\n" not in str(raised.value)
    with pytest.raises(MetastoreFailed, match="forbids"):
        opened.write(ROWS)
    assert len(list(Path(opened.store.root).glob("bucket-0/*"))) == 1


# -- partitions ------------------------------------------------------------------------------------------------------


def test_partitions_are_kept_by_the_server(
    house: Catalog, java_house: Java, proxy: FaultyProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    # The server does not forget the partitions of a dropped table, so no other test has this name.
    fields = pa.schema([*FIELDS, pa.field("p", pa.int32(), nullable=False)])
    options = {"bucket": "1", "metastore.partitioned-table": "true", "partition.mark-done-action": "mark-event"}
    house.create_table("db.parted", fields, primary_keys=["k", "p"], partition_keys=["p"], options=options)
    seen = open_house(proxy.url)
    table = seen.table("db.parted")
    count = 110
    numbers = list(range(count))
    table.write(pa.table({"k": numbers, "v": ["a"] * count, "p": numbers}, schema=fields))
    java_house("write", table="db.parted", rows=[{"k": 1000, "v": "java", "p": 7}], compact="none")
    table = table.refresh()
    proxy.requests.clear()
    rows = seen.table("db.parted$partitions").to_arrow().to_pylist()
    assert sum("/partitions" in path for _, path in proxy.requests) >= 2, "the server gives 100 partitions a page"
    assert len(rows) == count and all(row["created_by"] for row in rows)
    assert {row["partition"]: row["record_count"] for row in rows}["p=7"] == 2
    proxy.requests.clear()
    place = ["-w", f"rest:{proxy.url}", "--catalog-option", f"warehouse={WAREHOUSE}", "--limit", "2"]
    assert run(["partitions", "db.parted", *place]) == 0
    assert "done" in (printed := capsys.readouterr().out) and "the first 2 rows" in printed
    proxy.requests.clear()
    assert seen.table("db.parted$partitions").to_arrow(columns=["partition"]).num_rows == count
    assert not [path for _, path in proxy.requests if path.endswith("/partitions")]
    served = {entry["spec"]["p"]: entry for entry in table.store.publisher.list_partitions("main")}
    assert (served["7"]["recordCount"], served["7"]["fileCount"]) == (2, 2)
    table.compact(full=True)
    table.drop_partitions([{"p": number} for number in range(20)])
    served = {entry["spec"]["p"]: entry for entry in table.store.publisher.list_partitions("main")}
    assert set(served) == {str(number) for number in range(20, count)}
    assert house.table("db.parted$partitions").to_arrow().num_rows == count - 20
    proxy.requests.clear()
    proxy.faults.append(Fault("POST", "/partitions/mark", "cut-after"))
    table = table.refresh()
    assert table.mark_partitions_done([{"p": 101}, {"p": 102}]) == ["p=101", "p=102"]
    assert [path.rpartition("/")[2] for method, path in proxy.requests if method == "POST"] == ["mark", "mark"]
    assert not list(Path(table.store.root).rglob("_SUCCESS"))


def test_partitions_that_no_server_keeps_are_not_marked_there(house: Catalog) -> None:
    fields = pa.schema([*FIELDS, pa.field("p", pa.int32(), nullable=False)])
    options = {"bucket": "1", "partition.mark-done-action": "success-file,mark-event"}
    table = house.create_table("db.t", fields, primary_keys=["k", "p"], partition_keys=["p"], options=options)
    with pytest.raises(UnsupportedFeature, match=r"metastore\.partitioned-table"):
        table.mark_partitions_done([{"p": 1}])
    assert not list(Path(table.store.root).rglob("_SUCCESS"))
    with pytest.raises(UnsupportedFeature, match="catalog server"):
        table.store.publisher.mark_partitions_done([{"p": "1"}], "main")


# -- external tables, plans in other processes, tags -----------------------------------------------------------------


def test_external_tables_are_shared_and_not_deleted(house: Catalog, java_house: Java, tmp_path: Path) -> None:
    """Clients publish the snapshots of an external table; the server has its name, its schema and its folder."""
    outside = Catalog(tmp_path / "outside")
    outside.create_database("other")
    made = create(outside, "other.e")
    made.write(ROWS)
    root = Path(made.store.root)
    fields = [{"id": 0, "name": "k", "type": "BIGINT NOT NULL"}, {"id": 1, "name": "v", "type": "STRING"}]
    schema = {"fields": fields, "primaryKeys": ["k"], "options": {"bucket": "1", "path": str(root)}}
    java_house("create", table="db.e", schema=schema)
    assert house.list_tables("db") == ["e"]
    table = house.table("db.e")
    assert table.store.publisher is None and Path(table.store.root) == root
    java_house("write", table="db.e", rows=[{"k": 9, "v": "java"}], compact="none")
    table.write(pa.table({"k": pa.array([8], pa.int64()), "v": ["ours"]}))
    assert table.compact(full=True).changed
    assert [row["k"] for row in java_house("read", table="db.e")["rows"]] == [1, 2, 3, 8, 9]
    table.create_tag("kept")
    table.create_branch("dev", from_tag="kept").write(ROWS)
    assert house.table("db.e$branch_dev").to_arrow().num_rows == 5
    with pytest.raises(TableNotFound, match="branch_other"):
        house.table("db.e$branch_other")
    undone = table.apply(table.plan_maintenance("rollback", snapshot_id=2))
    assert undone.trash_id, "a rollback of an external table has an undo, because the server takes no part in it"
    with pytest.raises(InvalidOption, match="folder"):
        create(house, "db.mine", path=str(tmp_path / "mine"))
    house.rename_table("db.e", "db.f")
    assert Path(house.table("db.f").store.root) == root
    house.drop_table("db.f")
    assert house.list_tables("db") == []
    assert outside.table("other.e").to_arrow().num_rows == 4, "the server drops its entry only"


def test_a_plan_of_one_process_is_applied_by_another(
    house: Catalog, server: RestServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = create(house)
    for _ in range(6):
        table.write(ROWS)
    place = ["-w", f"rest:{server.url}", "--catalog-option", f"warehouse={WAREHOUSE}"]

    def dredge(*words: str) -> str:
        run([*words, *place])
        printed = capsys.readouterr()
        return printed.out + printed.err

    plan_hash = table.save_plan(table.plan_maintenance("compact"))
    command = [sys.executable, "-m", "lsm_core.cli", "apply", "db.t", plan_hash, *place]
    applied = subprocess.run(command, capture_output=True, text=True)
    assert applied.returncode == 0 and "6 files in, 1 out" in applied.stdout, applied
    for _ in range(6):
        table.refresh().write(ROWS)
    combined = house.plan_maintenance("db.*", ["compact"])
    assert [item.table for item in combined.items] == ["db.t"]
    for words in ("done: snapshot", "already applied"):
        assert words in dredge("maintain", "--resume", combined.hash)
    plan = table.refresh().plan_maintenance("expire_snapshots", retain_max=1, retain_min=1)
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert TOKEN not in file.read_text()
    house.drop_table("db.t")
    fresh = create(house)
    for _ in range(14):
        fresh.write(ROWS)
    assert "stale" in dredge("apply", "db.t", "--file", str(file))
    assert len(house.table("db.t$snapshots").to_arrow()) == 14
    later = house.plan_maintenance("db.*", ["compact"])
    house.drop_table("db.t")
    create(house).write(ROWS)
    assert "no saved plan" in dredge("maintain", "--resume", later.hash)
    assert len(house.table("db.t$snapshots").to_arrow()) == 1


def test_tags_are_the_same_for_the_server(house: Catalog, java_house: Java) -> None:
    """Tags are files in the table's folder, as in Java, and the server's tag requests read and write these files."""
    table = create(house)
    table.write(ROWS)
    table.create_tag("ours")
    client, place = house._metastore._client, ("databases", "db", "tables", "t", "tags")
    assert list(client.pages("tags", *place)) == [["ours"]]
    assert client.get(*place, "ours")["snapshot"]["id"] == 1
    client.post(b'{"tagName": "theirs", "snapshotId": 1, "timeRetained": null}', *place)
    java_house("tag", name="java", snapshot=1)
    assert sorted(table.refresh().tags()) == ["java", "ours", "theirs"]
    table.write(ROWS)
    table.refresh().expire_snapshots(retain_max=1, retain_min=1)
    assert house.table("db.t").to_arrow(tag="theirs").num_rows == 3
    table.delete_tag("theirs")
    assert sorted(name for page in client.pages("tags", *place) for name in page) == ["java", "ours"]


def test_system_tables_are_read_and_views_are_no_tables(house: Catalog) -> None:
    table = create(house)
    table.write(ROWS)
    for system in set(SYSTEM_TABLES) - {"row_tracking"}:
        assert house.table(f"db.t${system}").to_arrow().num_columns, system
    for name in GLOBAL_TABLES:
        assert house.table(f"sys.{name}").to_arrow().num_columns, name
    schema = {"fields": [], "query": "SELECT 1", "dialects": {}, "comment": "", "options": {}}
    body = {"identifier": {"database": "db", "object": "seen"}, "schema": schema}
    house._metastore._client.post(json.dumps(body).encode(), "databases", "db", "views")
    assert list(house._metastore._client.pages("views", "databases", "db", "views")) == [["seen"]]
    assert house.list_tables("db") == ["t"]
    with pytest.raises(TableNotFound, match="seen"):
        house.table("db.seen")
    assert house.drop_table("db.seen", ignore_if_not_exists=True) is False


def test_keys_of_a_table_come_from_the_server(house: Catalog, server: RestServer) -> None:
    create(house)
    served = house._metastore.served(TableName("db", "t"))
    source = ServedKeys(house._metastore._client, "db", "t", served.id, "oss")
    with pytest.raises(MetastoreFailed, match="no keys of oss"):  # the server's own sample has other names
        source.keys()
    ends = SystemClock().now_ms() + 7_200_000 * 2
    keys = "fs.oss.accessKeyId=id fs.oss.accessKeySecret=hidden fs.oss.securityToken=session fs.oss.endpoint=evil"
    server.tell(f"data-token db.t {ends} {keys}")
    store_keys = source.keys()
    assert (store_keys.access_key, store_keys.secret_key, store_keys.session_token) == ("id", "hidden", "session")
    assert source.keys() is store_keys and "hidden" not in repr(store_keys)
    with pytest.raises(TableNotFound):
        ServedKeys(house._metastore._client, "db", "gone", "1", "oss").keys()
