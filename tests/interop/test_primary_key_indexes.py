"""Primary-key tables with btree and bitmap indexes: Java and Dredge take turns, as in `test_turns`.

After each step Java's reads with filters on the indexed columns return the rows that a scan returns. Java's readers
use an index file only for the exact data files that it names. Sample: one table of each version; soak: 48 of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError
from lsm_core.format.index_sources import decode_sources
from lsm_core.metadata import manifests, snapshots
from tests.interop.test_turns import NAMES, STEPS, Java, Kind, Turns
from tests.support.index_sources import encode_sources
from tests.support.peers import JavaPaimon, peer_module

KINDS = [
    Kind(producer, vectors=True, mode="fixed", engine=engine)
    for producer, engine in product(("none", "lookup", "input"), ("deduplicate", "partial-update", "aggregation"))
]
FIRST = int(os.environ.get("DREDGE_INDEXED_FIRST", "0"))
MANY = int(os.environ.get("DREDGE_INDEXED_TABLES", "48"))
SEEDS = [
    pytest.param(range(1), id="sample"),
    pytest.param(range(FIRST, FIRST + MANY), id="many", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]
FILTERS: list[tuple[str, str, Any, Callable[[Any], bool]]] = [
    ("a", "=", 2, lambda value: value == 2),
    ("a", "!=", 2, lambda value: value is not None and value != 2),
    ("a", ">", 1, lambda value: value is not None and value > 1),
    ("a", "in", [0, 3], lambda value: value in (0, 3)),
    ("a", "is_null", None, lambda value: value is None),
    ("b", "<=", 2, lambda value: value is not None and value <= 2),
    ("b", "is_not_null", None, lambda value: value is not None),
    ("c", "=", "x", lambda value: value == "x"),
    ("c", "=", "", lambda value: value == ""),
    ("c", "in", ["x", "y"], lambda value: value in ("x", "y")),
    ("c", "is_null", None, lambda value: value is None),
]


@pytest.fixture(scope="module", params=["2.0.0", "2.1-SNAPSHOT"])
def newer(request: pytest.FixtureRequest, java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """A JVM of Java Paimon 2.0 or 2.1, which have indexes of primary-key tables."""
    return java_of(request.param)


def _java(peer: JavaPaimon, warehouse: Path) -> Java:
    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(peer.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))

    return call


class IndexedTurns(Turns):
    """A table whose columns a, b and c have indexes; maintenance of Dredge takes turns, too."""

    def options(self) -> dict[str, str]:
        """Of a table of this kind."""
        drawn = {key: text for key, text in super().options().items() if key != "dredge.paimon-version"}
        indexes = self.random.choice([("a,b", "c"), ("a", "b,c"), ("c", "a,b"), ("a,b,c", None), (None, "a,b,c")])
        keys = ("pk-btree.index.columns", "pk-bitmap.index.columns")
        return {**drawn, **{key: text for key, text in zip(keys, indexes, strict=True) if text is not None}}

    def step(self, *, first: bool) -> None:
        """A write or compaction of one of the two, or maintenance by Dredge."""
        if first or self.random.random() < 0.75:
            super().step(first=first)
            return
        deed = self.random.choice(
            [self.undo, self.rescale, self.expire, self.clean, self.drop, self.roll_back, self.tag]
        )
        self.told.append(f"dredge: {deed.__name__}")
        deed()

    def undo(self) -> None:
        """Take back a compaction of Dredge, if it is the newest snapshot."""
        run = self.table.compact(full=True)
        if run.snapshot_id is not None and self.kind.producer != "lookup":  # its changes went to streams already
            self.table.undo(run.run_id, allow_changes=True)

    def rescale(self) -> None:
        """Another number of buckets."""
        number = self.random.choice([1, 2, 3])
        self.table.apply(self.table.plan_maintenance("rescale", bucket_num=number))
        self.java("alter", changes=[{"change": "set_option", "key": "bucket", "value": str(number)}])

    def expire(self) -> None:
        """Only the newest snapshot stays."""
        self.table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
        self.table.sweep_trash(now_ms=1 << 42)

    def clean(self) -> None:
        """Orphan files of any age; nobody writes meanwhile."""
        self.table.remove_orphan_files(older_than_ms=86_400_000)
        self.table.sweep_trash(now_ms=1 << 42)

    def drop(self) -> None:
        """One of the partitions."""
        self.table.drop_partitions([{"p": self.random.randrange(2)}])

    def roll_back(self) -> None:
        """To the oldest snapshot that has files."""
        oldest = snapshots.earliest_id(self.table.store)
        assert oldest is not None
        self.table.rollback_to_as_latest(oldest)

    def tag(self) -> None:
        """A tag, and a branch from it."""
        self.table.create_tag(f"t{self.random.randrange(10**6)}")

    def rows_agree(self) -> list[tuple[Any, ...]]:
        """Both read the same rows, and Java's filtered reads return the rows of a scan."""
        rows = super().rows_agree()
        for column, op, value, matches in self.random.sample(FILTERS, 4):
            found = self.java("read", filter=[[column, op, value]])["rows"]
            theirs = sorted((tuple(row[name] for name in NAMES) for row in found), key=repr)
            ours = [row for row in rows if matches(row[NAMES.index(column)])]
            assert theirs == ours, f"{column} {op} {value}: Java reads {theirs}, of {ours}"
        return rows


@pytest.mark.paimon_java
@pytest.mark.parametrize("seeds", SEEDS)
def test_filtered_reads_return_all_rows(newer: JavaPaimon, tmp_path: Path, testrun_uid: str, seeds: range) -> None:
    Catalog(str(tmp_path)).create_database("db")
    first = int(testrun_uid, 16) % 10**6
    built = 0
    for seed in (first + number for number in seeds):
        turns = IndexedTurns(seed, KINDS[seed % len(KINDS)], tmp_path, _java(newer, tmp_path))
        try:
            assert turns.create() == []
            for number in range(STEPS if len(seeds) == 1 else 2 * STEPS):
                turns.step(first=number == 0)
                turns.rows_agree()
            turns.java("write", rows=[turns.row() for _ in range(20)], compact="full")
            built += _check_indexes(turns)
            turns.table.compact(full=True)
            turns.rows_agree()
            _check_indexes(turns)
        except (AssertionError, DredgeError, peer_module().PeerError, pa.ArrowException) as error:
            story = "\n".join(turns.told)
            raise AssertionError(f"seed {seed} of {turns.kind}:\n{story}\n{type(error).__name__}: {error}") from error
    assert built, "Java wrote indexes"


def _check_indexes(turns: IndexedTurns) -> int:
    """Assert that each index file names exactly the compacted files of its level; return the number of index files."""
    store = turns.table.store
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    files = manifests.live_entries(store, snapshot).to_pylist()
    entries = [entry for entry in manifests.index_entries(store, snapshot) if entry.is_global]
    for entry in entries:
        assert entry.global_index is not None
        sources = decode_sources(entry.global_index.source_meta or b"")
        assert sources is not None
        assert encode_sources(sources) == entry.global_index.source_meta
        place = (entry.partition, entry.bucket, sources.level, 1)
        columns = ("partition", "bucket", "level", "file_source")
        covered = sorted(
            (file["file_name"], file["row_count"])
            for file in files
            if tuple(file[column] for column in columns) == place
        )
        assert sources.files == tuple(covered)
        assert store.file_io.exists(store.index_path(entry.file_name)), entry.file_name
    return len(entries)


@pytest.mark.soak
@pytest.mark.paimon_java
def test_a_copy_keeps_its_indexes(newer: JavaPaimon, tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_database("db")
    java = _java(newer, tmp_path)
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "pk-btree.index.columns": "v"}
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": options})
    for first in (0, 8):
        java("write", rows=[{"k": k, "v": k % 5} for k in range(first, first + 12)], compact="full")
    table = Catalog(str(tmp_path)).table("db.t")
    table.apply(table.plan_maintenance("copy_table", target="db.copy"))
    (index,) = java("index_files", table="db.copy")["files"]
    assert (index["type"], index["row_count"]) == ("btree", 20)
    assert len(java("read", table="db.copy", filter=[["v", "=", 3]])["rows"]) == 4
    java("write", table="db.copy", rows=[{"k": 1, "v": 3}], compact="full")
    assert len(java("read", table="db.copy", filter=[["v", "=", 3]])["rows"]) == 5
