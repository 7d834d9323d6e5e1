"""Tables with changelogs, hash indexes or deletion vectors, and for each table a statement for fault tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import discard_on_failure
from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.used_files import metadata_names, names_of
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import deletion_vectors, hash_index, read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import Purpose, unsupported
from lsm_core.storage import FileIO, LocalFileIO

QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "3"}
COLUMNS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Statement = Callable[[Table], Any]
Row = tuple[Any, ...]


def rows(keys: Sequence[int], value: int, partition: str = "a") -> pa.Table:
    """Return rows whose values identify the write."""
    return pa.table([[partition] * len(keys), list(keys), [value + key for key in keys]], schema=COLUMNS)


def _overlapping(table: Table) -> None:
    """Fill a table with two level-0 files over one older run, with deletes."""
    table.write(rows(range(12), 0))
    table.compact(full=True)
    table.write(rows(range(4, 9), 100))
    table.write(rows([5, 20, 1], 200), row_kinds=pa.array([0, 0, 3], pa.int8()))


def _marked(table: Table) -> None:
    """Fill a table with a large top run and newer versions of some of its rows in level 0.

    A compaction of level 0 then writes to a level below the top run.
    """
    table.write(rows(range(3000), 0))
    table.compact(full=True)
    table.write(rows(range(10, 20), 10_000))
    table.compact()
    table.write(rows(range(15, 25), 20_000))


def _two_writes(table: Table) -> None:
    table.write(rows(range(9), 0))
    table.write(rows(range(6, 12), 100))


def _appended(table: Table) -> None:
    """Fill a table with three files; deletion vectors mark rows of two files."""
    for first in (0, 10, 20):
        table.write(rows(range(first, first + 6), 0))
    table.delete([("k", "in", [1, 12])])


def _live(table: Table) -> None:
    """Run a stream job of two commits with compactions; skip the commits that an earlier run of the job made."""
    own = {snapshot.commit_identifier for snapshot in table.snapshots() if snapshot.commit_user == "job"}
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in sorted({5, 6} - own):
            writer.write(rows(range(4, 4 + 2 * number), 1000))
            writer.compact({"p": "a"}, 0, full=True)
            messages = writer.prepare_commit(wait_compaction=True, commit_identifier=number)
            with discard_on_failure(table.store, messages):  # this job gives up
                commit.filter_and_commit({number: messages})


@dataclass(frozen=True)
class Kind:
    """Kind of table, and a statement that gives the same table if it is executed again.

    Attributes:
        statement: statement to break.
        fill: fills the empty table before the statement.
        options: options of the table.
        keys: primary key columns; empty for an append table.
        commits: number of commits of the statement.
    """

    statement: Statement
    fill: Statement
    options: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ("p", "k")
    commits: int = 1

    def create(self, warehouse: Path, name: str = "db.t") -> Table:
        """Create the empty table, and the warehouse if it does not exist."""
        catalog = Catalog(str(warehouse))
        catalog.create_database("db", ignore_if_exists=True)
        schema = Schema(COLUMNS, list(self.keys), ["p"], {**QUICK, **self.options})
        return catalog.create_table(name, schema)

    def refused(self) -> str | None:
        """Return the feature because of which Dredge cannot write or compact the table, or None if it can."""
        with TemporaryDirectory() as folder:
            try:
                found = unsupported(self.create(Path(folder)).store, Purpose.COMPACT)
            except UnsupportedFeature as error:
                return str(error)
            return found[0] if found else None


def _write(table: Table) -> Any:
    return table.write(rows(range(7, 16), 1000))


def _compact(table: Table) -> Any:
    return table.compact(full=True)


def _minor(table: Table) -> Any:
    return table.compact()


DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}
VECTORS = {"deletion-vectors.enabled": "true"}
APPEND = {**VECTORS, "bucket": "-1", "compaction.min.file-num": "2"}


def _producing(producer: str) -> dict[str, str]:
    return {"bucket": "1", "changelog-producer": producer, "num-sorted-run.compaction-trigger": "3"}


KINDS: dict[str, Kind] = {
    **{
        f"{producer} changelog, {what}": Kind(statement, _overlapping, _producing(producer), commits=commits)
        for producer in ("input", "lookup", "full-compaction")
        for what, statement, commits in (("write", _write, 1), ("compaction", _compact, 1), ("stream", _live, 2))
    },
    "dynamic write": Kind(_write, _two_writes, DYNAMIC),
    "dynamic overwrite": Kind(lambda t: t.write(rows(range(5, 9), 7), overwrite=True), _two_writes, DYNAMIC),
    "dynamic compaction": Kind(_compact, _overlapping, DYNAMIC),
    "dynamic stream": Kind(_live, _two_writes, DYNAMIC, commits=2),
    "dynamic input changelog write": Kind(_write, _two_writes, {**DYNAMIC, "changelog-producer": "input"}),
    "vectors minor": Kind(_minor, _marked, {**VECTORS, "bucket": "1"}),
    "vectors full": Kind(_compact, _marked, {**VECTORS, "bucket": "1"}),
    "vectors stream": Kind(_live, _marked, {**VECTORS, "bucket": "1"}, commits=2),
    "vectors lookup minor": Kind(_minor, _marked, {**VECTORS, **_producing("lookup")}),
    "vectors dynamic minor": Kind(
        _minor, _marked, {**VECTORS, **DYNAMIC, "dynamic-bucket.target-row-num": "5000", "changelog-producer": "input"}
    ),
    "append delete": Kind(lambda t: t.delete([("k", "<", 13)]), _appended, APPEND, ()),
    "append update": Kind(
        lambda t: t.update([("k", ">=", 4), ("k", "<", 14)], {"v": pc.field("k") * 5}), _appended, APPEND, ()
    ),
    "append compaction": Kind(_compact, _appended, APPEND, ()),
    "append buckets delete": Kind(
        lambda t: t.delete([("k", ">", 11)]), _appended, {**APPEND, "bucket": "2", "bucket-key": "k"}, ()
    ),
}


def opened(warehouse: Path, file_io: FileIO | None = None, name: str = "db.t") -> Table:
    """Open the table without any cached state."""
    database, table = name.split(".")
    return Table(TableStore.open(file_io or LocalFileIO(), f"{warehouse}/{database}.db/{table}", name))


def content(table: Table) -> list[Row]:
    """Return all rows, sorted; duplicate keys are not merged."""
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def told(table: Table) -> list[list[dict[str, Any]]]:
    """Return the changelog of every snapshot from the first, or an empty list for a table without changelog."""
    if table.store.options.changelog_producer == "none" or not table.primary_keys:
        return []
    stream = table.new_stream_scan(from_snapshot=1)
    found = []
    while (batch := stream.next()) is not None:
        found.append(batch.to_arrow().to_pylist())
    return found


def named(store: TableStore) -> set[str]:
    """Return the bare names of all files that existing snapshots reference or added, and of hint and schema files."""
    table = Table(store)
    names = {"EARLIEST", "LATEST"} | {f"schema-{number}" for number in range(9)}
    for snapshot in table.snapshots():
        names |= {f"snapshot-{snapshot.id}", *metadata_names(store, snapshot)}
        names |= set(names_of(manifests.delta_entries(store, snapshot)).to_pylist())
        if snapshot.changelog_manifest_list:
            names |= set(names_of(manifests.changelog_entries(store, snapshot)).to_pylist())
    return names


def strays(store: TableStore) -> set[str]:
    """Return the bare names of unreferenced files of the table, except files of the folder ``dredge``."""
    root = Path(store.root)
    files = {path for path in root.rglob("*") if path.is_file() and "dredge" not in path.relative_to(root).parts[0]}
    return {path.name for path in files} - named(store)


def require_whole(table: Table) -> None:
    """Assert that the index files of the newest snapshot exist and are valid.

    Each key hash belongs to one bucket, and each deletion vector belongs to a live file.
    """
    store = table.store
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    hashes: dict[bytes, list[int]] = {}
    for entry in manifests.index_entries(store, snapshot):
        if entry.index_type == "HASH":
            hashes.setdefault(entry.partition, []).extend(hash_index(store, entry).tolist())
    assert all(len(found) == len(set(found)) for found in hashes.values())
    live = manifests.live_entries(store, snapshot, columns=["file_name", "row_count"])
    lengths = dict(zip(live.column("file_name").to_pylist(), live.column("row_count").to_pylist(), strict=True))
    for vectors in deletion_vectors(store, snapshot).values():
        for name, vector in vectors.items():
            assert read_vector(store, vector, lengths[name]).cardinality > 0
    if hashes:
        assert sum(map(len, hashes.values())) >= len(content(table))
