"""Warehouses behind a real Hive metastore: Java's Hive catalog and Dredge are its clients, take turns, and share locks.

`DREDGE_HIVE_LIVES` (default 30) is the number of random histories of `make soak`, `DREDGE_HIVE_SEED` the first one's
seed; a failure shows its seed and the steps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.cli.app import run
from lsm_core.errors import DredgeError, LockTimeout, MetastoreFailed
from lsm_core.locks import Grant, LockSettings, held, table_lock
from lsm_core.table.schema_change import SchemaChange
from tests.support.clocks import replace_sleep
from tests.support.hive_server import Cut, HiveProxy, HiveServer, hive_jars, start_hive_server
from tests.support.peers import PYICEBERG, JavaPaimon, SparkConnector, missing, peer_module

pytestmark = pytest.mark.paimon_java
Java = Callable[..., dict[str, Any]]
LIVES = int(os.environ.get("DREDGE_HIVE_LIVES", "30"))
FIRST_SEED = int(os.environ.get("DREDGE_HIVE_SEED", "4000"))
SAMPLE = 2
STEPS, FEW_STEPS = 9, 5
"""Steps of a history of `make soak`, and of one of `make test`."""
LOCK_TIMEOUT = "4s"
"""Time after which the metastore removes a lock without a heartbeat."""
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}, schema=FIELDS)
VOLATILE = frozenset({"numFiles", "totalSize", "numRows", "rawDataSize", "transient_lastDdlTime", "path"})
"""Properties of a metastore's table that Hive counts itself, and the path, which only the schema read by Java has."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveServer]:
    """Yield the running metastore, which takes all changes of columns."""
    settings = {"hive.txn.timeout": LOCK_TIMEOUT, "hive.metastore.disallow.incompatible.col.type.changes": "false"}
    running = start_hive_server(tmp_path_factory.mktemp("metastore"), settings)
    yield running
    running.close()


@pytest.fixture(scope="module")
def java_process() -> Iterator[JavaPaimon]:
    """Yield Java Paimon with Hive's client."""
    try:
        running = JavaPaimon(hive_jars=hive_jars())
    except peer_module().PeerMissing as error:
        missing(f"Java Paimon with Hive: {error}")
    yield running
    running.close()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let tables compact only where a test says so."""
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def open_house(folder: Path, uri: str, **options: str) -> Catalog:
    """Return the warehouse as Dredge's catalog."""
    return Catalog(folder / "house", {"metastore": "hive", "uri": uri, **options})


@pytest.fixture
def house(server: HiveServer, tmp_path: Path) -> Iterator[Catalog]:
    """Yield the warehouse with the empty database `db`, which is dropped at the end."""
    catalog = open_house(tmp_path, server.uri)
    catalog.create_database("db", ignore_if_exists=True)
    yield catalog
    catalog.drop_database("db", ignore_if_not_exists=True, cascade=True)


@pytest.fixture
def java(java_process: JavaPaimon, server: HiveServer, tmp_path: Path) -> Java:
    """Return a function that calls Java, whose catalog is the metastore's; it takes locks for its commits."""

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(java_process.call(op, **{"warehouse": str(tmp_path / "house"), "table": "db.t", **arguments}))

    options = {"metastore": "hive", "uri": server.uri, "lock.enabled": "true", "lock-check-max-sleep": "100 ms"}
    for lane in range(2):
        call("catalog_open", options=options, lane=lane)
    return call


def create(catalog: Catalog, name: str = "db.t", **options: str) -> Table:
    """Create a table with a primary key."""
    return catalog.create_table(name, FIELDS, primary_keys=["k"], options={"bucket": "1", **options})


# -- one catalog -----------------------------------------------------------------------------------------------------


def entries_agree(java: Java, table: str) -> dict[str, Any]:
    """Return the metastore's table, which is what Java stores for the newest schema."""
    stored, expected = (java(op, table=table) for op in ("hive_stored", "hive_expected"))
    for entry in (stored, expected):
        entry["parameters"] = {key: value for key, value in entry["parameters"].items() if key not in VOLATILE}
        entry["location"] = entry["location"].removeprefix("file://").removeprefix("file:")
        entry.pop("owner")
    assert stored == expected
    return stored


def test_java_and_dredge_share_the_metastore(house: Catalog, java: Java) -> None:
    table = create(house)
    table.write(ROWS)
    entries_agree(java, "db.t")
    assert java("catalog_tables", database="db")["names"] == ["t"]
    assert [(row["k"], row["v"]) for row in java("read")["rows"]] == [(1, "a"), (2, "b"), (3, "c")]
    java("write", rows=[{"k": 2, "v": "java"}, {"k": 4, "v": "d"}], compact="none")
    java("alter", changes=[{"change": "add_column", "name": "w", "type": "INT"}])
    altered = house.table("db.t")
    assert altered.to_arrow().sort_by("k").to_pylist()[1] == {"k": 2, "v": "java", "w": None}
    changes = [
        SchemaChange.rename_column("v", "text"),
        SchemaChange.add_column("x", pa.decimal128(8, 2), first=True, comment="x"),
        SchemaChange.update_type("w", pa.int64()),
        SchemaChange.update_column_comment("w", "wide"),
        SchemaChange.move("w", after="k"),
        SchemaChange.set_option("snapshot.num-retained.max", "20"),
        SchemaChange.set_comment("ours"),
    ]
    house.alter_table("db.t", changes)
    stored = entries_agree(java, "db.t")
    assert [name for name, _, _ in stored["columns"]] == ["x", "k", "w", "text"]
    assert stored["parameters"]["snapshot.num-retained.max"] == "20"
    house.alter_table("db.t", [SchemaChange.remove_option("snapshot.num-retained.max")])
    assert "snapshot.num-retained.max" not in entries_agree(java, "db.t")["parameters"]
    java("catalog_rename", to="db.moved")
    assert house.list_tables("db") == ["moved"]
    house.rename_table("db.moved", "db.again")
    assert len(java("read", table="db.again")["rows"]) == 4
    assert java("hive_stored", table="db.again")["location"].endswith("/db.db/again")
    house.table("db.again").compact(full=True)
    assert len(java("read", table="db.again")["rows"]) == 4
    house.drop_table("db.again")
    assert java("catalog_tables", database="db")["names"] == [] == house.list_tables("db")


# -- Iceberg ---------------------------------------------------------------------------------------------------------

READ_ICEBERG = """
import json, sys
sys.path.append(sys.argv[1])
from pyiceberg.catalog.hive import HiveCatalog
table = HiveCatalog("hive", uri=sys.argv[2]).load_table(sys.argv[3])
rows = [[row["k"], row["v"]] for row in table.scan().to_arrow().to_pylist()]
print(json.dumps({"rows": sorted(rows), "uuid": str(table.metadata.table_uuid)}))
"""
"""Reads an Iceberg table of a Hive metastore with pyiceberg, which has no package for Thrift of its own."""


def read_iceberg(server: HiveServer, name: str) -> dict[str, Any]:
    """Return the rows and the UUID of an Iceberg table, as pyiceberg's Hive catalog reads it."""
    if not PYICEBERG.exists():
        missing("pyiceberg (make peers)")
    spec = importlib.util.find_spec("thrift")
    assert spec is not None and spec.origin is not None
    place = str(Path(spec.origin).parent.parent)
    command = [str(PYICEBERG), "-c", READ_ICEBERG, place, server.uri, name]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def turns_on_iceberg(house: Catalog, java: Java, server: HiveServer, seed: int, steps: int) -> None:
    """Let Java and Dredge commit in turns to a table whose Iceberg entry pyiceberg reads after each commit."""
    random = Random(seed)
    iceberg = {"metadata.iceberg.storage": "hive-catalog", "metadata.iceberg.uri": server.uri}
    iceberg |= {"metadata.iceberg.table": "shown", "bucket": "-1", "metadata.iceberg.database": f"ice{seed}"}
    iceberg |= {"metadata.iceberg.storage-location": random.choice(["table-location", "catalog-location"])}
    house.create_table("db.t", pa.schema([("k", pa.int64()), ("v", pa.string())]), options=iceberg)
    expected: list[list[Any]] = []
    uuids = set()
    for step in range(steps):
        ours = step % 2 == 0 if step < 3 else random.random() < 0.5
        row = {"k": step, "v": "dredge" if ours else "java"}
        if ours:
            house.table("db.t").write(pa.table({"k": [step], "v": ["dredge"]}))
        else:
            java("write", rows=[row], compact="none")
        expected.append([row["k"], row["v"]])
        shown = read_iceberg(server, f"ice{seed}.shown")
        assert shown["rows"] == expected, (seed, step, ours)
        uuids.add(shown["uuid"])
    assert len(uuids) == 1
    house.drop_table("db.t")


def test_java_and_dredge_enter_one_iceberg_table(house: Catalog, java: Java, server: HiveServer) -> None:
    turns_on_iceberg(house, java, server, 1, 3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + LIVES // 3))
def test_long_turns_on_one_iceberg_table(house: Catalog, java: Java, server: HiveServer, seed: int) -> None:
    turns_on_iceberg(house, java, server, seed, STEPS)


# -- histories -------------------------------------------------------------------------------------------------------


@dataclass
class LivingTable:
    """A table of a history.

    Attributes:
        keyed: whether it has a primary key.
        partitioned: whether it is partitioned by `p`.
        registered: whether its partitions are in the metastore.
        columns: columns that may change, with their types.
        number: number of columns that were ever added.
    """

    keyed: bool
    partitioned: bool
    registered: bool
    columns: dict[str, str] = field(default_factory=lambda: {"v": "STRING"})
    number: int = 0


ARROW_TYPES = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64()}


class HiveLife:
    """Java and Dredge change tables of one database in turns, drawn from a seed."""

    def __init__(self, seed: int, house: Catalog, java: Java) -> None:
        self.random, self.house, self.java = Random(seed), house, java
        self.tables: dict[str, LivingTable] = {}
        self.steps: list[str] = []
        self.numbers = iter(range(1_000_000))

    def live(self, steps: int) -> None:
        """Take the steps; compare the tables after each one, and drop them at the end."""
        self.create()
        for _ in range(steps):
            actions = [self.write] * 5 + [self.compact] * 3 + [self.alter] * 4 + [self.rename, self.drop_partition]
            actions += [self.create] if len(self.tables) < 3 else [self.drop]
            self.random.choice(actions)()
            self.agree()
        while self.tables:
            self.drop()
            self.agree()

    def chosen(self) -> tuple[str, LivingTable, bool]:
        """Return (name, table, whether Dredge acts)."""
        name = self.random.choice(sorted(self.tables))
        return name, self.tables[name], self.random.random() < 0.55

    def note(self, ours: bool, text: str) -> None:
        """Add a step to the story."""
        self.steps.append(f"{'dredge' if ours else 'java'} {text}")

    def create(self) -> None:
        """Create a table."""
        random, name = self.random, f"db.t{next(self.numbers)}"
        table = LivingTable(random.random() < 0.7, random.random() < 0.6, random.random() < 0.7)
        options = {"bucket": "1" if table.keyed else "-1"}
        if table.registered:
            options["metastore.partitioned-table"] = "true"
        if random.random() < 0.3:
            options["file.format"] = random.choice(["orc", "avro"])
        ours, keys = random.random() < 0.5, ["p", "k"] if table.partitioned else ["k"]
        partition_keys = ["p"] if table.partitioned else []
        self.note(ours, f"creates {name} {table} {options}")
        if ours:
            fields = pa.schema(
                [pa.field("k", pa.int64(), nullable=not table.keyed), pa.field("p", pa.string()), ("v", pa.string())]
            )
            keyed = {"primary_keys": keys} if table.keyed else {}
            self.house.create_table(name, fields, partition_keys=partition_keys, options=options, comment="c", **keyed)
        else:
            fields = [{"name": "k", "type": "BIGINT"}, {"name": "p", "type": "STRING"}, {"name": "v", "type": "STRING"}]
            keys = keys if table.keyed else []
            schema = {"fields": fields, "primaryKeys": keys, "partitionKeys": partition_keys, "options": options}
            self.java("create", table=name, schema=schema)
        self.tables[name] = table

    def write(self) -> None:
        """Write rows to one or two partitions."""
        name, table, ours = self.chosen()
        names = {"k": "BIGINT", "p": "STRING", **table.columns}
        rows = []
        for _ in range(self.random.choice([1, 3, 12])):
            row: dict[str, Any] = {"k": self.random.randrange(20), "p": self.random.choice(["a", "b", "c d", "e=f"])}
            for column, kind in table.columns.items():
                number = self.random.randrange(100)
                row[column] = self.random.choice([None, str(number) if kind == "STRING" else number])
            rows.append(row)
        self.note(ours, f"writes {rows} to {name}")
        if not ours:
            compaction = self.random.choice(["none", "full"]) if table.keyed else "none"
            self.java("write", table=name, rows=rows, compact=compaction)
            return
        opened = self.house.table(name)
        schema = pa.schema([(column, ARROW_TYPES[kind]) for column, kind in names.items()])
        opened.write(pa.Table.from_pylist(rows, schema=schema).select(opened.schema.field_names))

    def compact(self) -> None:
        """Compact a table."""
        name, table, ours = self.chosen()
        full = self.random.random() < 0.7
        self.note(ours, f"compacts {name}, full={full}")
        if ours or not table.keyed:
            self.house.table(name).compact(full=full)
        else:
            self.java("compact", table=name, full=full)

    def alter(self) -> None:
        """Change a column, an option or a comment."""
        name, table, ours = self.chosen()
        kind = self.random.choice(
            ["add", "add", "rename", "drop", "widen", "comment", "set", "remove", "table comment"]
        )
        column = self.random.choice([*table.columns, ""]) or "v"
        ints = [item for item, kind in table.columns.items() if kind == "INT"]
        theirs: dict[str, Any]
        if kind == "widen" and ints:
            change, theirs = (
                SchemaChange.update_type(ints[0], pa.int64()),
                {"change": "update_type", "name": ints[0], "type": "BIGINT"},
            )
            table.columns[ints[0]] = "BIGINT"
        elif kind in {"rename", "drop"} and column in table.columns and len(table.columns) > 1:
            if kind == "drop":
                change, theirs = SchemaChange.drop_column(column), {"change": "drop_column", "name": column}
                del table.columns[column]
            else:
                table.number += 1
                new = f"c{table.number}"
                change = SchemaChange.rename_column(column, new)
                theirs = {"change": "rename_column", "name": column, "to": new}
                table.columns = {new if item == column else item: kind for item, kind in table.columns.items()}
        elif kind == "comment":
            change = SchemaChange.update_column_comment("k", "the key")
            theirs = {"change": "update_column_comment", "name": "k", "comment": "the key"}
        elif kind == "table comment":
            change = SchemaChange.set_comment("changed")
            theirs = {"change": "update_comment", "comment": "changed"}
        elif kind in {"set", "remove"}:
            key = self.random.choice(["snapshot.num-retained.max", "hive.note"])
            change, theirs = SchemaChange.remove_option(key), {"change": "remove_option", "key": key}
            if kind == "set":
                change = SchemaChange.set_option(key, "50")
                theirs = {"change": "set_option", "key": key, "value": "50"}
        else:
            table.number += 1
            new = f"c{table.number}"
            change = SchemaChange.add_column(new, pa.int32(), comment="added")
            theirs = {"change": "add_column", "name": new, "type": "INT", "comment": "added"}
            table.columns[new] = "INT"
        self.note(ours, f"alters {name}: {theirs}")
        if ours:
            self.house.alter_table(name, [change])
        else:
            self.java("alter", table=name, changes=[theirs])

    def rename(self) -> None:
        """Rename a table."""
        name, table, ours = self.chosen()
        new = f"db.t{next(self.numbers)}"
        self.note(ours, f"renames {name} to {new}")
        if ours:
            self.house.rename_table(name, new)
        else:
            self.java("catalog_rename", table=name, to=new)
        del self.tables[name]
        self.tables[new] = table

    def drop(self) -> None:
        """Drop a table; its folder does not remain."""
        name, _, ours = self.chosen()
        folder = Path(self.house.table(name).store.root)
        self.note(ours, f"drops {name}")
        if ours:
            self.house.drop_table(name)
        else:
            self.java("drop", table=name)
        del self.tables[name]
        assert not list(folder.rglob("*.parquet"))

    def drop_partition(self) -> None:
        """Drop a partition by Dredge, which also removes it from the metastore."""
        name, table, _ = self.chosen()
        if table.partitioned and self.house.table(name).latest_snapshot() is not None:
            self.note(ours=True, text=f"drops a partition of {name}")
            self.house.table(name).drop_partitions([{"p": "a"}])

    def agree(self) -> None:
        """Compare the names, rows and entries of all tables."""
        names = sorted(name.removeprefix("db.") for name in self.tables)
        assert self.house.list_tables("db") == names == self.java("catalog_tables", database="db")["names"]
        for name, table in self.tables.items():
            ours = self.house.table(name).to_arrow().to_pylist()
            theirs = [{key: row[key] for key in row if key != "_kind"} for row in self.java("read", table=name)["rows"]]
            assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
            stored = entries_agree(self.java, name)
            is_registered = table.partitioned and table.registered
            assert [column for column, _, _ in stored["partition_columns"]] == (["p"] if is_registered else [])
            if is_registered:
                listed = self.java("hive_partitions", table=name)["partitions"]
                assert {tuple(entry["values"]) for entry in listed} == {(row["p"],) for row in ours}


def live(seed: int, house: Catalog, java: Java, steps: int = STEPS) -> None:
    """Live one history; a failure shows its seed and steps."""
    life = HiveLife(seed, house, java)
    try:
        life.live(steps)
    except (AssertionError, DredgeError, peer_module().PeerError, pa.ArrowException) as error:
        story = "\n".join(life.steps)
        raise AssertionError(f"DREDGE_HIVE_SEED={seed}:\n{story}\n{type(error).__name__}: {error}") from error


def test_java_and_dredge_take_turns(house: Catalog, java: Java) -> None:
    for seed in range(SAMPLE):
        live(seed, house, java, FEW_STEPS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_turns(house: Catalog, java: Java, server: HiveServer, tmp_path: Path) -> None:
    failures = []
    locking = open_house(tmp_path, server.uri, **{"lock.enabled": "true"})
    for seed in range(FIRST_SEED, FIRST_SEED + LIVES):
        try:
            live(seed, locking if seed % 2 else house, java)
        except AssertionError as failure:
            failures.append(str(failure))
            print(f"\nfailure {len(failures)}: {failure}", file=sys.__stderr__, flush=True)
            house.drop_database("db", cascade=True)
            house.create_database("db")
    assert not failures, f"{len(failures)} of {LIVES} histories failed:\n" + "\n\n".join(failures[:5])


# -- Spark -----------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_spark_java_and_dredge_share_the_metastore(
    house: Catalog, java: Java, server: HiveServer, tmp_path: Path
) -> None:
    """Spark reads, writes and alters by Paimon's connector; Spark with Hive support sees the tables."""
    settings = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": server.uri}
    try:
        spark = SparkConnector(settings)
    except peer_module().PeerMissing as error:
        pytest.skip(f"NOT TESTED: Paimon's Spark connector: {error}")

    def sql(statement: str) -> list[Any]:
        options = {"metastore": "hive", "uri": server.uri, "lock.enabled": "true"}
        return list(spark.call(tmp_path / "house", sql=statement, catalog_options=options)["rows"])

    try:
        keyed = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False)])
        keyed = keyed.append(pa.field("v", pa.string()))
        options = {"bucket": "1", "metastore.partitioned-table": "true"}
        house.create_table("db.t", keyed, primary_keys=["p", "k"], partition_keys=["p"], options=options)
        house.table("db.t").write(pa.table({"k": [1, 2], "p": ["a", "b"], "v": ["x", "y"]}, schema=keyed))
        sql("INSERT INTO db.t VALUES (1, 'a', 'spark'), (3, 'c', 'z')")
        sql("ALTER TABLE db.t ADD COLUMNS (w INT COMMENT 'wide')")
        java("write", rows=[{"k": 4, "p": "d", "v": "java", "w": 4}], compact="none")
        house.alter_table("db.t", [SchemaChange.rename_column("v", "text")])
        house.table("db.t").compact(full=True)
        expected = [[1, "a", "spark", None], [2, "b", "y", None], [3, "c", "z", None], [4, "d", "java", 4]]
        assert sql("SELECT k, p, text, w FROM db.t ORDER BY k") == expected
        ours = house.table("db.t").to_arrow().sort_by("k")
        assert [[row[name] for name in ("k", "p", "text", "w")] for row in ours.to_pylist()] == expected
        described = sql("DESCRIBE db.t")[:4]
        assert described == [
            ["k", "bigint", None],
            ["p", "string", None],
            ["text", "string", None],
            ["w", "int", "wide"],
        ]
        assert sql("SHOW PARTITIONS db.t") == [["p=a"], ["p=b"], ["p=c"], ["p=d"]]
        entries_agree(java, "db.t")
        sql("CREATE TABLE db.u (k BIGINT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')")
        sql("ALTER TABLE db.u RENAME TO db.w")
        assert house.list_tables("db") == ["t", "w"]
        house.table("db.w").write(ROWS)
        assert len(sql("SELECT * FROM db.w")) == 3
        listed = spark.call("", sql="SHOW TABLES IN db")["rows"]
        assert sorted(name for _, name, _ in listed) == ["t", "w"]
        sql("DROP TABLE db.w")
        assert house.list_tables("db") == ["t"]
    finally:
        spark.close()


# -- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(house: Catalog, server: HiveServer, tmp_path: Path) -> Catalog:
    """Return the warehouse as a catalog that takes locks, with the table `db.t`."""
    catalog = open_house(tmp_path, server.uri, **{"lock.enabled": "true"})
    create(catalog)
    return catalog


def test_java_and_dredge_share_the_lock(locked: Catalog, server: HiveServer, java: Java, tmp_path: Path) -> None:
    table = locked.table("db.t")
    assert java("hive_lock")["held"]
    hurried = open_house(
        tmp_path,
        server.uri,
        **{"lock.enabled": "true", "lock-acquire-timeout": "80 ms", "lock-check-max-sleep": "20 ms"},
    )
    with pytest.raises(LockTimeout, match=r"db\.t in thrift://.* still held by \S+ on \S+ \(lock \d+, last heartbeat"):
        hurried.table("db.t").write(ROWS)
    with pytest.raises(LockTimeout):
        hurried.alter_table("db.t", [SchemaChange.set_comment("none")])
    assert table.latest_snapshot() is None
    release = threading.Timer(0.5, lambda: java("hive_unlock"))
    began = time.monotonic()
    release.start()
    table.write(ROWS)  # waits for Java to release
    assert time.monotonic() - began >= 0.4
    release.join()
    # And Java waits for Dredge.
    store = table.store
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "me")
    assert lock is not None
    written = threading.Thread(target=lambda: java("write", rows=[{"k": 9, "v": "java"}], compact="none"))
    with held(lock, LockSettings(lease=600)) as lease:
        written.start()
        time.sleep(0.8)  # longer than the lease, which is renewed
        assert [snapshot.id for snapshot in table.snapshots()] == [1]
        lease.require()
    written.join()
    assert sorted(table.refresh().to_arrow().column("k").to_pylist()) == [1, 2, 3, 9]


def test_the_metastore_frees_the_lock_of_a_holder_that_died(locked: Catalog) -> None:
    table = locked.table("db.t")
    store = table.store
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "dead")
    assert lock is not None
    grant = lock.acquire()
    assert isinstance(grant, Grant)
    table.write(ROWS)
    assert not lock.owns(grant) and lock.renew(grant) is None
    lock.release(grant)
    assert table.to_arrow().num_rows == 3


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_no_commit_is_lost_while_java_and_dredge_commit_at_once(locked: Catalog, java: Java) -> None:
    """Java renames its snapshot over one that appeared after its check, so only the lock keeps both."""
    rounds = 12
    locked.alter_table("db.t", [SchemaChange.set_option("commit.max-retries", "200")])

    def write_ours(writer: int) -> None:
        table = locked.table("db.t")
        for number in range(rounds):
            table.write(pa.table({"k": [writer * 1000 + number], "v": ["dredge"]}, schema=FIELDS))

    def write_theirs(lane: int) -> None:
        for number in range(rounds):
            java("write", lane=lane, rows=[{"k": 9000 + lane * 100 + number, "v": "java"}], compact="none")

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(write_ours, writer) for writer in (1, 2)]
        jobs += [pool.submit(write_theirs, lane) for lane in range(2)]
        for job in jobs:
            job.result()
    assert locked.table("db.t").to_arrow().num_rows == len(java("read")["rows"]) == 4 * rounds
    assert len(locked.table("db.t").snapshots()) == 4 * rounds


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_without_an_answer_about_its_lock_publishes_nothing(
    locked: Catalog, server: HiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    replace_sleep(monkeypatch, "lsm_core.locks.hive_client", lambda seconds: None)
    proxy = HiveProxy(server.port)
    try:
        seen = open_house(tmp_path, proxy.uri, **{"lock.enabled": "true"}).table("db.t")
        proxy.cuts.append(Cut("check_lock", moment, times=99))
        with pytest.raises(MetastoreFailed, match="check_lock"):
            seen.write(ROWS)
        assert locked.table("db.t").latest_snapshot() is None
        assert "unlock" in proxy.methods
        proxy.cuts[:] = [Cut("lock", moment), Cut("check_lock", moment), Cut("unlock", moment)]
        seen.write(ROWS)
    finally:
        proxy.close()
    assert locked.table("db.t").latest_snapshot().id == 1  # type: ignore[union-attr]


def test_doctor_and_status_name_the_lock(
    locked: Catalog, server: HiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["-w", str(tmp_path / "house")]
    for option in ("metastore=hive", f"uri={server.uri}", "lock.enabled=true"):
        place += ["--catalog-option", option]
    locked.table("db.t").write(ROWS)
    for words in (["doctor", "db.t"], ["status", "db.t"]):
        assert run([*words, *place]) == 0, words
        assert f"commits hold the lock of db.t in the metastore {server.uri}" in " ".join(
            capsys.readouterr().out.replace("│", " ").split()
        ), words
