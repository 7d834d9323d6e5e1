"""Random histories of tables with Iceberg metadata, written by Java and Dredge; Iceberg readers are compared after every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from lsm_core import Catalog, Table
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import latest_schema
from lsm_core.storage import LocalFileIO
from lsm_core.types import DataType, TypeRoot
from tests.interop.schema_twins import as_change
from tests.interop.values import Limits, Value, anything, canonical, difference, rows_of_arrow, table_of
from tests.support.peers import IcebergReaders, refusal_of

Java = Callable[..., dict[str, Any]]
Rows = list[str]

SCALARS: Final = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(20, 4)"),
    *("CHAR(4)", "VARCHAR(5)", "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIMESTAMP(3)", "TIMESTAMP(6)"),
    *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
)
NESTED: Final[tuple[Any, ...]] = (
    {"type": "ARRAY", "element": "INT"},
    {"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}},
    {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"},
    {"type": "MAP", "key": "INT NOT NULL", "value": {"type": "ARRAY", "element": "STRING NOT NULL"}},
    {
        "type": "ROW",
        "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 1, "name": "y", "type": "STRING NOT NULL"}],
    },
)
ROWS_IN_ARRAYS: Final = {
    "type": "ARRAY",
    "element": {"type": "ROW", "fields": [{"id": 0, "name": "d", "type": "DECIMAL(10, 2)"}]},
}
"""Type whose null values pyiceberg reads as empty lists."""
PARTITIONS: Final = ("INT NOT NULL", "STRING NOT NULL", "DATE NOT NULL", "BOOLEAN NOT NULL")
WIDER: Final = {
    "TINYINT": "INT",
    "SMALLINT": "INT",
    "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "DECIMAL(10, 2)": "DECIMAL(14, 2)",
    "VARCHAR(5)": "STRING",
    "VARBINARY(9)": "BYTES",
}
RETAINED: Final = "snapshot.num-retained.max"
ALL_TYPES: Final[dict[str, Any]] = {
    "p": "INT NOT NULL",
    "k": "INT NOT NULL",
    **{f"s{number}": kind for number, kind in enumerate(SCALARS)},
    **{f"n{number}": kind for number, kind in enumerate(NESTED)},
    "rows": ROWS_IN_ARRAYS,
}


FILTERED: Final = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.DECIMAL, TypeRoot.DATE),
        *(TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ, TypeRoot.VARCHAR),
    }
)
"""Types whose values can be written in a condition of pyiceberg."""


def literal(value: Value, kind: DataType) -> str:
    """Return a value as a literal in a condition of pyiceberg."""
    if kind.root in (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT):
        return str(value)
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return f"'{value[:26]}{'+00:00' if value.endswith('Z') else ''}'"
    return f"'{value}'"


def metadata_folder(warehouse: Path, name: str, storage: str) -> Path:
    """Return the folder of a table of the Iceberg catalog, which has the subfolder `metadata`."""
    database, table = name.split(".")
    return (
        warehouse / f"{database}.db" / table
        if storage == "table-location"
        else warehouse / "iceberg" / database / table
    )


def schema_of(warehouse: Path, name: str) -> TableSchema:
    """Return the newest schema of a table, from disk."""
    database, table = name.split(".")
    schema = latest_schema(LocalFileIO(), str(warehouse / f"{database}.db" / table))
    assert schema is not None
    return schema


def types_of(warehouse: Path, name: str) -> dict[str, DataType]:
    """Return the types of a table's columns, in order."""
    return {column.name: column.type for column in schema_of(warehouse, name).fields}


def random_rows(seed: int | Random, types: Mapping[str, DataType], count: int) -> list[dict[str, Value]]:
    """Return random rows, whose keys and partitions are few."""
    random = seed if isinstance(seed, Random) else Random(seed)
    rows = [
        {name: anything(random, kind, limits=Limits.CASTS) for name, kind in types.items() if name not in ("p", "k")}
        for _ in range(count)
    ]
    few = {TypeRoot.INT: [0, 1, 2], TypeRoot.VARCHAR: ["a", "b=c"], TypeRoot.BOOLEAN: [True, False]}
    for row in rows:
        if "p" in types:
            row["p"] = random.choice(few.get(types["p"].root, ["2024-02-29", "1969-12-31"]))
        if "k" in types:
            row["k"] = random.randrange(30)
    return rows


def iceberg_rows(rows: pa.Table | Sequence[Mapping[str, Value]], types: Mapping[str, DataType]) -> Rows:
    """Return rows of a reader in the order and form in which they are compared."""
    return canonical(rows_of_arrow(rows, types) if isinstance(rows, pa.Table) else rows, types)


@dataclass
class Version:
    """Rows that Iceberg readers must see at a snapshot.

    Attributes:
        types: columns of the snapshot's schema.
        rows: the rows, or None if only their bounds are known.
        merged: all rows of the table at the snapshot.
        schema_id: schema of the snapshot.
        identity: name of the snapshot's manifest list, which a snapshot with the same id after a rollback does not share.
    """

    types: dict[str, DataType]
    rows: Rows
    merged: Rows
    schema_id: int
    identity: str


@dataclass(frozen=True)
class Kind:
    """Kind of table.

    Attributes:
        keyed: whether the table has a primary key.
        vectors: whether the table has deletion vectors, which format version 2 does not publish.
        partitioned: whether the table has a partition column.
        storage: value of `metadata.iceberg.storage`.
    """

    keyed: bool
    vectors: bool
    partitioned: bool
    storage: str


def random_kind(random: Random) -> Kind:
    """Return a kind of table; tables without a key have no deletion vectors here."""
    keyed = random.random() < 0.65
    return Kind(
        keyed,
        keyed and random.random() < 0.3,
        random.random() < 0.5,
        random.choice(["table-location", "table-location", "hadoop-catalog"]),
    )


@dataclass
class IcebergLife:
    """One table, what is done to it, and what Iceberg readers must see, drawn from a seed.

    Attributes:
        seed: seed of all choices.
        warehouse: folder of the warehouse.
        java: function that calls Java Paimon.
        readers: pyiceberg and DuckDB.
        writers: "java" and "dredge", or one of them.
        replaces_after_rollback: whether this Java repairs metadata of rolled-back snapshots (since 2.1).
    """

    seed: int
    warehouse: Path
    java: Java
    readers: IcebergReaders
    writers: tuple[str, ...] = ("java",)
    replaces_after_rollback: bool = False
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.kind = random_kind(self.random)
        self.table_name = f"db.t{self.seed}"
        self.folder = metadata_folder(self.warehouse, self.table_name, self.kind.storage)
        self.versions: dict[int, Version] = {}
        self.exact, self.exact_from, self.rolled_back = not self.kind.keyed, 0, False
        self.checked_from = 0
        self.rebuilt, self.repaired, self.uuid = False, False, ""
        self.state: dict[str, Any] | None = None
        self.added = 0
        self.tag_count = 0

    @property
    def by_java(self) -> bool:
        """Whether Java is one of the writers."""
        return "java" in self.writers

    # -- state ---------------------------------------------------------------------------------------------------------

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Run a command of Java on the table."""
        return self.java(op, table=self.table_name, **arguments)

    @property
    def table(self) -> Table:
        """The table, opened again."""
        return Catalog(str(self.warehouse)).table(self.table_name)

    @property
    def types(self) -> dict[str, DataType]:
        """Columns of the newest schema."""
        return types_of(self.warehouse, self.table_name)

    def visible_rows(self, snapshot_id: int, types: Mapping[str, DataType]) -> Rows:
        """Return the rows of the read-optimised view; deletion vectors of format version 2 are not applied."""
        if self.kind.vectors:  # Dredge applies the vectors that a snapshot has, whatever the option says
            options = {"deletion-vectors.enabled": "false", "scan.snapshot-id": str(snapshot_id)}
            return iceberg_rows(self.java("read", table=f"{self.table_name}$ro", options=options)["rows"], types)
        view = Catalog(str(self.warehouse)).table(f"{self.table_name}$ro")
        return iceberg_rows(view.to_arrow(snapshot_id=snapshot_id), types)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the table by Java, and write and compact the first rows."""
        random, kind = self.random, self.kind
        columns: dict[str, Any] = {"p": random.choice(PARTITIONS)} if kind.partitioned else {}
        columns["k"] = "INT NOT NULL"
        for number in range(random.randrange(2, 7)):
            chosen = random.choice(NESTED) if random.random() < 0.3 else random.choice(SCALARS)
            # Java 1.4 cannot publish files without statistics of such a column.
            can_be_required = isinstance(chosen, str) and chosen != "DECIMAL(20, 4)"
            columns[f"v{number}"] = f"{chosen} NOT NULL" if can_be_required and random.random() < 0.3 else chosen
        options = {
            "bucket": random.choice(["1", "2"]) if kind.keyed else "-1",
            "metadata.iceberg.storage": kind.storage,
            "metadata.iceberg.previous-versions-max": random.choice(["0", "0", "2"]),
            "metadata.iceberg.delete-after-commit.enabled": random.choice(["true", "true", "false"]),
            "metadata.iceberg.compaction.min.file-num": random.choice(["2", "10"]),
            "metadata.iceberg.compaction.max.file-num": random.choice(["3", "50"]),
            "metadata.iceberg.manifest-compression": random.choice(["snappy", "zstd"]),
            "metadata.iceberg.manifest-legacy-version": random.choice(["false", "false", "true"]),
            # Of a required column without statistics Java publishes 0 as bounds, so that readers skip its files.
            "metadata.stats-mode": random.choice(["truncate(16)", "full", "truncate(1)" if self.by_java else "none"]),
            "snapshot.num-retained.min": "1",
            RETAINED: random.choice(["4", "100"]),
            "metadata.stats-dense-store": random.choice(["true", "false"]),
        }
        if kind.vectors:
            options |= {"deletion-vectors.enabled": "true", "deletion-vectors.modifiable": "true"}
        keys = [*(["p"] if kind.partitioned else []), "k"] if kind.keyed else []
        schema = {
            "fields": [{"name": name, "type": kind} for name, kind in columns.items()],
            "primaryKeys": keys,
            "partitionKeys": ["p"] if kind.partitioned else [],
            "options": options,
        }
        self.story.append(f"create {self.kind} {json.dumps(schema)}")
        self.options = options
        self.call("create", schema=schema)
        self.write(self.random.choice(self.writers), compact="full")

    def step(self) -> None:
        """Do one random thing by one of the writers."""
        who = self.random.choice(self.writers)
        steps: list[tuple[float, Callable[[str], None]]] = [
            (6, self.write),
            (3, self.compact),
            (1.5, self.alter),
            (1, self.overwrite),
            (1, self.tag),
            (0.5, self.delete_tag),
            (0.7, self.expire),
        ]
        if self.kind.partitioned:
            steps.append((1, self.drop_partition))
        if "dredge" in self.writers and not self.kind.vectors:
            steps.append((1, self.change_rows))
        if "dredge" in self.writers or (self.replaces_after_rollback and self.options[RETAINED] != "4"):
            steps.append((1, self.rollback))
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0](who)

    def write(self, who: str, compact: str | None = None, partition: Mapping[str, Value] | None = None) -> None:
        """Write rows; a third of the writes to a keyed table delete."""
        rows = random_rows(self.random, self.types, self.random.choice([1, 5, 20]))
        for row in rows:
            row.update(partition or {})
        kind = "-D" if self.kind.keyed and partition is None and self.random.random() < 0.25 else "+I"
        compact = compact or self.random.choice(["none", "minor", "full"])
        overwrite = (
            None if partition is None else {"partition": {name: _text(value) for name, value in partition.items()}}
        )
        self.story.append(f"{who} writes {kind} {compact} overwrite={overwrite} {json.dumps(rows)[:1500]}")
        if who == "java":
            rows = [{"_kind": kind, **row} for row in rows]
            self.call("write", rows=rows, compact=compact if self.kind.keyed else "none", overwrite=overwrite)
        else:
            data = table_of(rows, self.types)
            kinds = pa.array([kind] * len(rows)) if self.kind.keyed and partition is None else None
            into: Any = None if partition is None else (_arrow_partition(data, partition) or True)
            self.table.write(data, kinds, overwrite=into, compact=False)
            if compact != "none":
                self.table.compact(full=compact == "full")
        if compact == "full" and who == "java":
            # Java compacts the buckets of these rows only
            self.story.append("java compacts all buckets")
            self.call("compact", full=True)
        if compact == "full":
            self.become_exact()

    def become_exact(self) -> None:
        """Expect exactly the read-optimised view from the newest snapshot on: all files are on the last level."""
        if self.rebuilt or not self.exact:
            latest = self.table.latest_snapshot()
            assert latest is not None
            self.checked_from = latest.id if self.rebuilt else 0
            self.exact, self.rebuilt, self.exact_from = True, False, latest.id

    def overwrite(self, who: str) -> None:
        """Replace one partition, or all rows."""
        partition = {}
        if self.kind.partitioned:
            partition = {"p": random_rows(self.random, {"p": self.types["p"]}, 1)[0]["p"]}
        self.write(who, partition=partition)

    def compact(self, who: str) -> None:
        """Compact all buckets."""
        full = self.random.random() < 0.6
        self.story.append(f"{who} compacts, full={full}")
        if who == "java":
            refusal = refusal_of(lambda: self.call("compact", full=full))
            assert not refusal or "EndOfScanException" in refusal, refusal  # of a table without rows
        else:
            self.table.compact(full=full)
        if full:
            self.become_exact()

    def alter(self, who: str) -> None:
        """Add, rename, drop or widen a column."""
        values = [name for name in self.types if name not in ("p", "k")]
        widened = [(column, WIDER[kind]) for column, kind in self._widened().items()]
        changes: list[dict[str, Any]] = [
            {"change": "add_column", "name": f"a{self.added}", "type": self.random.choice([*SCALARS, NESTED[0]])}
        ]
        if len(values) > 1:
            changes.append({"change": "rename_column", "name": values[0], "to": f"r{self.added}"})
            changes.append({"change": "drop_column", "name": self.random.choice(values)})
        for column, kind in widened[:1]:
            changes.append({"change": "update_type", "name": column, "type": kind, "keep_nullability": True})
        change = self.random.choice(changes)
        self.added += 1
        self.story.append(f"{who} alters: {json.dumps(change)}")
        if who == "java":
            self.call("alter", changes=[change])
        else:
            Catalog(str(self.warehouse)).alter_table(self.table_name, [as_change(change)])

    def _widened(self) -> dict[str, str]:
        kinds = {
            name: str(kind).removesuffix(" NOT NULL") for name, kind in self.types.items() if name not in ("p", "k")
        }
        return {name: kind for name, kind in kinds.items() if kind in WIDER}

    def tag(self, who: str) -> None:
        """Tag the newest snapshot, unless it has a tag."""
        latest = self.table.latest_snapshot()
        assert latest is not None
        if latest.id in {tag.snapshot.id for tag in self.table.tags().values()}:
            return
        name = f"tag{self.tag_count}"
        self.tag_count += 1
        self.story.append(f"{who} tags {latest.id} as {name}")
        if who == "java":
            self.call("tag", name=name)
        else:
            self.table.create_tag(name)

    def delete_tag(self, who: str) -> None:
        """Delete a tag."""
        names = sorted(self.table.tags())
        if not names:
            return
        name = self.random.choice(names)
        self.story.append(f"{who} deletes tag {name}")
        if who == "java":
            self.call("delete_tag", name=name)
        else:
            self.table.delete_tag(name)

    def expire(self, who: str) -> None:
        """Expire snapshots by the table's own options."""
        self.story.append(f"{who} expires snapshots")
        if who == "java":
            self.call("expire_snapshots")
        else:
            self.table.expire_snapshots()

    def drop_partition(self, who: str) -> None:
        """Drop one partition."""
        partition = {"p": random_rows(self.random, {"p": self.types["p"]}, 1)[0]["p"]}
        self.story.append(f"{who} drops {partition}")
        if who == "java":
            self.call("truncate", partitions=[{name: _text(value) for name, value in partition.items()}])
        else:
            self.table.drop_partitions([table_of([partition], {"p": self.types["p"]}).to_pylist()[0]])

    def change_rows(self, who: str) -> None:
        """Delete rows by a condition, which rewrites files of a table without a key."""
        bound = self.random.randrange(5, 25)
        if not self.kind.keyed and self.random.random() < 0.5:
            self.story.append(f"dredge sets k = 3 where k > {bound}")
            self.table.update([("k", ">", bound)], {"k": 3})
            return
        self.story.append(f"dredge deletes k < {bound}")
        self.table.delete([("k", "<", bound)])

    def rollback(self, who: str) -> None:
        """Return to an older snapshot, and commit."""
        older = [snapshot.id for snapshot in self.table.snapshots()][:-1]
        if not older:
            return
        target = self.random.choice(older)
        if not self.replaces_after_rollback or self.options[RETAINED] == "4":
            who = "dredge"  # Java's next commit finds the metadata of the snapshots that are gone, or lost manifests
        self.story.append(f"{who} rolls back to {target}")
        self.rolled_back = self.repaired = True
        if who == "java":
            self.call("rollback", snapshot=target)
            self.rebuilt = self.kind.keyed
        else:
            self.table.rollback_to(target)
            self.check()
            self.repaired = True
        self.write(who if who == "java" else "dredge")

    # -- checks --------------------------------------------------------------------------------------------------------

    def note_versions(self) -> None:
        """Record what readers must see at the snapshots that are new."""
        types = self.types
        for snapshot in self.table.snapshots():
            identity = f"{snapshot.base_manifest_list} {snapshot.delta_manifest_list}"
            known = self.versions.get(snapshot.id)
            if known is not None and known.identity == identity:
                continue
            merged = iceberg_rows(self.table.to_arrow(snapshot_id=snapshot.id), types)
            rows = self.visible_rows(snapshot.id, types)
            self.versions[snapshot.id] = Version(types, rows, merged, snapshot.schema_id, identity)

    def check(self) -> dict[str, Any]:
        """Compare pyiceberg with the read-optimised view; return the state of the metadata."""
        self.note_versions()
        state = self.readers.describe(self.folder)
        latest = self.table.latest_snapshot()
        assert latest is not None
        assert state["current"] == latest.id, f"Iceberg is at snapshot {state['current']}, Paimon at {latest.id}"
        self.uuid = self.uuid or state["uuid"]
        assert state["uuid"] == self.uuid, "another table UUID"
        ids = [snapshot["id"] for snapshot in state["snapshots"]]
        assert ids == list(range(ids[0], latest.id + 1)), f"snapshots {ids}"
        alive = {snapshot.id for snapshot in self.table.snapshots()}
        tagged = {name: tag.snapshot.id for name, tag in self.table.tags().items()}
        self._check_rows(latest.id)
        older = [number for number in ids if number in alive and number != latest.id]
        for snapshot_id in self.random.sample(older, min(1, len(older))):
            self._check_rows(snapshot_id)
        refs = {name: number for name, number in state["refs"].items() if name != "main"}
        if len(ids) > 1:
            assert refs == {name: number for name, number in tagged.items() if number in ids}, (
                f"refs {refs} of tags {tagged}"
            )
        for name, snapshot_id in refs.items():
            self._check_rows(snapshot_id, ref=name)
        self._check_filter(latest.id)
        self._check_schemas(state)
        self._check_history(state)
        self._check_files(state, latest.id)
        self.state = state
        return state

    def _check_rows(self, snapshot_id: int, ref: str | None = None) -> None:
        version = self.versions[snapshot_id]
        chosen: dict[str, Any] = {"ref": ref} if ref else {"snapshot_id": snapshot_id}
        rows = iceberg_rows(self.readers.read(self.folder, **chosen), version.types)
        where = f"at snapshot {snapshot_id}{f' (tag {ref})' if ref else ''}"
        if self.rebuilt or snapshot_id < self.checked_from:
            return  # Java publishes the files that can be read raw, which the view does not always have
        if self.exact and snapshot_id >= self.exact_from:
            assert rows == version.rows, f"pyiceberg {where}: " + difference(rows, version.rows)
        elif not self.kind.vectors:
            assert not set(version.rows) - set(rows), f"pyiceberg {where} lacks rows: " + difference(rows, version.rows)

    def _check_filter(self, snapshot_id: int) -> None:
        """Compare a filter with the rows: wrong statistics or partition values would skip files."""
        version = self.versions[snapshot_id]
        columns = [name for name, kind in version.types.items() if kind.root in FILTERED]
        rows = iceberg_rows(self.readers.read(self.folder, snapshot_id=snapshot_id), version.types)
        column = self.random.choice(columns)
        values = [json.loads(row)[column] for row in rows]
        chosen = [value for value in values if value is not None and str(value).isascii() and "'" not in str(value)]
        if not chosen:
            return
        value = self.random.choice(chosen)
        condition = f"{column} == {literal(value, version.types[column])}"
        read = self.readers.read(self.folder, snapshot_id=snapshot_id, condition=condition)
        filtered_rows = iceberg_rows(read, version.types)
        expected = [row for row in rows if json.loads(row)[column] == value]
        assert filtered_rows == expected, f"pyiceberg with {condition}: " + difference(filtered_rows, expected)

    def _check_history(self, state: dict[str, Any]) -> None:
        """Check that the metadata was extended: a rebuild has no older snapshots, and other manifest lists."""
        lists = {snapshot["id"]: snapshot["list"] for snapshot in state["snapshots"]}
        if self.state is not None and not self.repaired:
            before = {snapshot["id"]: snapshot["list"] for snapshot in self.state["snapshots"]}
            first = state["current"] - int(self.options[RETAINED])
            kept = {number: path for number, path in before.items() if number > first}
            assert {number: lists.get(number) for number in kept} == kept, "the metadata was built anew"
        self.repaired = False
        for snapshot in state["snapshots"]:
            assert snapshot["sequence"] == snapshot["id"]
            assert snapshot["parent"] in (None, snapshot["id"] - 1)
            known = self.versions.get(snapshot["id"])
            assert known is None or snapshot["schema"] <= known.schema_id or self.rolled_back

    def _check_schemas(self, state: dict[str, Any]) -> None:
        newest = max(version.schema_id for version in self.versions.values())
        assert state["schema"] >= newest or self.rolled_back, f"schema {state['schema']}, not {newest}"
        assert set(state["schemas"]) == {str(number) for number in range(max(map(int, state["schemas"])) + 1)}
        for number, schema in state["schemas"].items():
            folder = self.warehouse / "db.db" / self.table_name.removeprefix("db.") / "schema"
            stored = json.loads((folder / f"schema-{number}").read_text())
            pairs = [(column["id"], column["name"]) for column in stored["fields"]]
            assert [(column["id"], column["name"]) for column in schema["fields"]] == pairs

    def _check_files(self, state: dict[str, Any], latest: int) -> None:
        folder = self.folder / "metadata"
        hint = (folder / "version-hint.text").read_text()
        assert hint == str(latest) and state["file"].endswith(f"v{latest}.metadata.json")
        versions = sorted(int(file.name[1:].split(".")[0]) for file in folder.glob("v*.metadata.json"))
        if self.options["metadata.iceberg.delete-after-commit.enabled"] == "true":
            kept = int(self.options["metadata.iceberg.previous-versions-max"])
            assert versions == list(range(max(1, latest - kept), latest + 1))[-len(versions) :], f"versions {versions}"
            assert len(versions) <= kept + 1


def live(life: IcebergLife, steps: int) -> None:
    """Live a life from creation to the last step; a failure has the seed and the steps in its text."""
    try:
        life.create()
        life.check()
        for _ in range(steps):
            life.step()
            life.check()
    except Exception as error:
        text = "\n".join(life.story)
        raise AssertionError(f"DREDGE_ICEBERG_SEED={life.seed}:\n{text}\n{type(error).__name__}: {error}") from error


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arrow_partition(data: pa.Table, partition: Mapping[str, Value]) -> dict[str, Any]:
    return {name: data.column(name)[0].as_py() for name in partition}
