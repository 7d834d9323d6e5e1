"""Dredge and Java take turns on one table: writing, compacting minor and full; tables of every changelog producer, with and without
deletion vectors, of every way to choose a bucket, with every merge engine.

After every step both read the same rows. At the end both streams tell the same changes, per snapshot and in the same order per key, and
where the producer promises before-images the changes, replayed from nothing, give the table.

``DREDGE_TURNS`` (default one of every fifth kind; `make soak`: ten of each) tables are drawn, ``DREDGE_TURNS_SEED`` is the first one's seed; a failure
tells its seed and the steps.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.files import writer
from lsm_core.maintenance import CompactionReport
from lsm_core.metadata.support import Purpose, unsupported
from lsm_core.options.table_options import PAIMON_VERSION, PaimonVersion
from tests.support.peers import peer_module

Java = Callable[..., dict[str, Any]]
Row = dict[str, Any]
Change = tuple[str, tuple[Any, ...]]

PRODUCERS = ("none", "input", "lookup", "full-compaction")
ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
MODES = ("fixed", "dynamic", "cross-partition")
TINY = os.environ.get("DREDGE_TURNS_TINY", "") == "true"
"""Whether files and row groups are tiny, so that compactions keep files and splice row groups."""
STEPS = 7 if TINY else 4
LANES = 4
SIZES = ((24, (1, 4, 15)), (24, (1, 4, 15)), (300, (1, 40, 250)))
"""Of tables: how many keys there are, and how many rows a write has."""
TINY_SIZES = ((1500, (1, 2, 3)), (2500, (2, 9, 9, 300)))
"""Likewise with tiny files: a small write meets few row groups of a large one, so the others are copied."""
NAMES = ("p", "k", "a", "b", "c")
FIELDS = [
    {"name": "p", "type": "INT NOT NULL"},
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "a", "type": "INT"},
    {"name": "b", "type": "BIGINT"},
    {"name": "c", "type": "STRING"},
]
SCHEMA = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("c", pa.string()),
    ]
)


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    producer: str
    vectors: bool
    mode: str
    engine: str

    @property
    def is_one(self) -> bool:
        """Whether Paimon has such tables: some of these options exclude each other."""
        if self.engine == "first-row":
            return self.producer in ("none", "lookup") and not self.vectors
        return not (self.vectors and self.producer == "full-compaction")

    def options(self, random: Random) -> dict[str, str]:
        """Of a table of this kind; small files and few buckets, so that much happens."""
        chosen = {
            "merge-engine": self.engine,
            "changelog-producer": self.producer,
            "bucket": "2" if self.mode == "fixed" else "-1",
            "num-sorted-run.compaction-trigger": random.choice(["2", "3", "5"]),
            "file.format": random.choice(["parquet", "parquet", "avro", "orc"]),
        }
        if random.random() < 0.2:
            chosen["target-file-size"] = "2 kb"
        if TINY:
            chosen |= {
                "file.format": "parquet",
                "target-file-size": random.choice(["4 kb", "40 kb"]),
                "dredge.compaction.exact-keys": "always",
            }
            if random.random() < 0.5:  # row groups of many pages, which are cut into parts
                chosen |= {"parquet.block.size": "8192", "parquet.page.row.count.limit": random.choice(["10", "25"])}
        version = random.choice([None, None, *PaimonVersion])
        if version is not None:
            chosen[PAIMON_VERSION] = version
        if self.vectors:
            chosen["deletion-vectors.enabled"] = "true"
            chosen["deletion-vectors.bitmap64"] = random.choice(["true", "false"])
        if self.mode != "fixed":
            chosen["dynamic-bucket.target-row-num"] = random.choice(["300", "1000"] if TINY else ["3", "7", "1000"])
        if self.engine == "aggregation":
            chosen |= {"fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max"}
            chosen |= {"fields.b.ignore-retract": "true", "fields.c.aggregate-function": "last_value"}
        if self.engine == "partial-update":
            chosen |= random.choice([{"ignore-delete": "true"}, {"partial-update.remove-record-on-delete": "true"}])
        if self.producer in ("lookup", "full-compaction"):
            chosen["changelog-producer.row-deduplicate"] = random.choice(["false", "true"])
        if self.producer == "lookup" or self.vectors:
            chosen["lookup-compact"] = random.choice(["radical", "gentle"])
        if self.engine != "first-row" and self.mode == "fixed" and random.random() < 0.3:
            chosen["sequence.field"] = "b"
            for key in [key for key in chosen if key.startswith("fields.b.")]:
                del chosen[key]
        return chosen


KINDS = [kind for kind in (Kind(*drawn) for drawn in product(PRODUCERS, (False, True), MODES, ENGINES)) if kind.is_one]
COUNT = int(os.environ.get("DREDGE_TURNS", str(len(KINDS) // 5)))
PARTS = 2
"""That test processes share."""
STRIDE = 5
"""Between kinds of `make test`: it divides neither the number of kinds nor that of engines, so that a few kinds meet all values."""
SHARES = [
    *(
        pytest.param(range(STRIDE * part, STRIDE * COUNT, STRIDE * PARTS), id=f"part {part + 1}")
        for part in range(min(PARTS, COUNT))
    ),
    pytest.param(range(10 * len(KINDS)), id="many", marks=pytest.mark.soak),
]


class Turns:
    """One table and what both do to it, drawn from a seed."""

    fields = FIELDS
    """Columns, as Java's driver creates them."""
    arrow = SCHEMA
    """Columns of Dredge's writes."""
    compactions = ("none", "minor", "minor", "full")
    """Compactions together with a write, to draw from."""
    reports: ClassVar[dict[str, list[CompactionReport]]] = {}
    """Reports of Dredge's compactions, by table: tests say how many files were kept and row groups spliced."""

    def __init__(self, seed: int, kind: Kind, warehouse: Path, java: Java) -> None:
        self.random, self.kind, self.warehouse = Random(seed), kind, warehouse
        self.name = f"db.t{seed}"
        self.keys, self.counts = self.random.choice(TINY_SIZES if TINY else SIZES)
        self.java: Java = lambda op, **given: java(op, table=self.name, **given)
        self.told: list[str] = []

    @property
    def table(self) -> Table:
        """Opened anew."""
        return Catalog(str(self.warehouse)).table(self.name)

    def options(self) -> dict[str, str]:
        """Of the table."""
        return self.kind.options(self.random)

    def create(self) -> list[str]:
        """By Java. Returns what Dredge refuses about it, nothing where it takes part."""
        options = self.options()
        keys = ["k"] if self.kind.mode == "cross-partition" else ["p", "k"]
        self.told.append(f"create {json.dumps(options)}")
        schema = {"fields": self.fields, "primaryKeys": keys, "partitionKeys": ["p"], "options": options}
        self.java("create", schema=schema)
        return unsupported(self.table.store, Purpose.COMPACT)

    def step(self, *, first: bool) -> None:
        """One deed of one of the two; a third of them compact."""
        ours = self.random.random() < 0.55
        if first or (TINY and len(self.told) == 2) or self.random.random() < 0.66:
            self.write(ours=ours)
            return
        full = self.random.random() < 0.5
        self.told.append(f"{'dredge' if ours else 'java'} compacts, full={full}")
        if ours:
            self.compact_ours(full=full)
        else:
            self.java("compact", full=full)

    def write_ours(self, rows: pa.Table, kinds: pa.Array) -> None:
        """A write of Dredge."""
        self.table.write(rows, kinds)

    def compact_ours(self, *, full: bool) -> None:
        """A compaction of Dredge."""
        self.reports.setdefault(self.name, []).append(self.table.compact(full=full))

    def read_ours(self) -> pa.Table:
        """What Dredge reads."""
        return self.table.to_arrow()

    def write(self, *, ours: bool) -> None:
        """Rows of some keys, some of them retracts where the engine takes them."""
        rows = [self.row() for _ in range(self.random.choice(self.counts))]
        how = self.random.choice(self.compactions)
        if TINY and len(self.told) <= 2:  # a large file of many row groups on the top level, then its rewrite
            ours, how = True, "full"
        if TINY and len(self.told) == 1:
            rows = [{**self.row(), "k": key, "_kind": "+I"} for key in range(0, self.keys, 2)]
        self.told.append(f"{'dredge' if ours else 'java'} writes, compact={how}: {json.dumps(rows)}")
        if not ours:
            self.java("write", rows=rows, compact=how)
            return
        kinds = pa.array([row["_kind"] for row in rows])
        plain = pa.Table.from_pylist([{name: row[name] for name in NAMES} for row in rows], schema=self.arrow)
        self.write_ours(plain, kinds)
        if how != "none":
            self.compact_ours(full=how == "full")

    def row(self) -> Row:
        """A row; retracts where the engine takes them."""
        random = self.random
        # Java cannot take values back from a table whose partition column is no key: the column would become null.
        adds_only = self.kind.engine == "first-row" or (self.kind.mode, self.kind.engine) == (MODES[2], "aggregation")
        roll = 1.0 if adds_only else random.random()
        kind = "-D" if roll < 0.15 else "+U" if roll < 0.3 else "+I"
        key = random.randrange(self.keys)
        partition = random.randrange(2) if self.kind.mode == "cross-partition" or random.random() < 0.5 else key % 2
        values = {
            "a": random.choice([None, *range(4)]),
            "b": random.choice([None, *range(4)]),
            "c": random.choice([None, "x", "y", ""]),
        }
        return {"_kind": kind, "p": partition, "k": key, **values}

    def rows_agree(self) -> list[tuple[Any, ...]]:
        """Both read the same rows: they are returned."""
        theirs = sorted((tuple(row[name] for name in NAMES) for row in self.java("read")["rows"]), key=repr)
        found = self.read_ours().select(NAMES).to_pylist()
        ours = sorted((tuple(row.values()) for row in found), key=repr)
        assert ours == theirs, f"Dredge reads {ours}, Java {theirs}"
        return ours

    def changes_agree(self) -> list[dict[tuple[Any, ...], list[Change]]]:
        """Both streams from the first snapshot on tell the same changes: returned per snapshot and key, in order.

        Where keys move, one that leaves a partition and comes back within one write may get another bucket there. Java tells its
        buckets in any order; Dredge tells first what leaves, which the replay holds it to.
        """
        answer = self.java("stream_read", from_snapshot=1)
        stream = self.table.new_stream_scan(from_snapshot=1)
        records: list[dict[tuple[Any, ...], list[Change]]] = []
        for event in answer["events"]:
            batch = stream.next()
            assert batch is not None, f"our stream ends before snapshot {event['snapshot']}"
            theirs = by_key(event["rows"])
            ours = by_key([{"_kind": row.pop("_ROW_KIND"), **row} for row in batch.to_arrow().to_pylist()])
            assert batch.snapshot_id == event["snapshot"]
            compared = unordered if self.kind.mode == "cross-partition" else dict
            assert compared(ours) == compared(theirs), (
                f"snapshot {batch.snapshot_id}: Dredge streams {ours}, Java {theirs}"
            )
            records.append(ours)
        assert stream.next() is None
        return records


def by_key(rows: list[Row]) -> dict[tuple[Any, ...], list[Change]]:
    """Changes of each key of a partition, in order."""
    found: dict[tuple[Any, ...], list[Change]] = {}
    for row in rows:
        values = tuple(row[name] for name in NAMES)
        found.setdefault(values[:2], []).append((row["_kind"], values))
    return found


def unordered(told: dict[tuple[Any, ...], list[Change]]) -> dict[tuple[Any, ...], list[Change]]:
    """The same changes of each key, whatever came first."""
    return {key: sorted(changes, key=repr) for key, changes in told.items()}


def replayed(changes: list[dict[tuple[Any, ...], list[Change]]]) -> list[tuple[Any, ...]]:
    """The rows that changes make of nothing; what is taken back must be what is there."""
    held: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
    for snapshot in changes:
        for key, item in snapshot.items():
            fits, held[key] = followed(held.get(key), item)
            assert fits, f"{item} of {key}, where {held[key]} is there"
    return sorted((row for row in held.values() if row is not None), key=repr)


def followed(row: tuple[Any, ...] | None, told: Iterable[Change]) -> tuple[bool, tuple[Any, ...] | None]:
    """Whether the changes of one key fit the row that is there, and the row after them; None: no row."""
    for kind, values in told:
        takes_back = kind in ("-U", "-D")
        if row != (values if takes_back else None):
            return False, row
        row = None if takes_back else values
    return True, row


def live_a_life(seed: int, kind: Kind, warehouse: Path, java: Java, taking: type[Turns] = Turns) -> str:
    """One table from creation to the last step; returns what Dredge refuses of it, "" where it took part. ``taking``: how Dredge does its part."""
    turns = taking(seed, kind, warehouse, java)
    try:
        refused = turns.create()
        if refused:
            with pytest.raises(UnsupportedFeature):
                turns.table.write(pa.Table.from_pylist([], schema=turns.arrow))
            return refused[0]
        for number in range(STEPS):
            turns.step(first=number == 0)
            turns.rows_agree()
        if kind.producer in ("lookup", "full-compaction"):
            # what lies in level 0 has not been told yet
            ours = turns.random.random() < 0.5
            turns.told.append(f"{'dredge' if ours else 'java'} compacts at last")
            turns.compact_ours(full=True) if ours else turns.java("compact", full=True)
        rows, changes = turns.rows_agree(), turns.changes_agree()
        if kind.producer in ("lookup", "full-compaction"):
            assert replayed(changes) == rows
    except (AssertionError, DredgeError, peer_module().PeerError, pa.ArrowException) as error:
        story = "\n".join(turns.told)
        raise AssertionError(
            f"DREDGE_TURNS_SEED={seed} of {kind}:\n{story}\n{type(error).__name__}: {error}"
        ) from error
    return ""


def live_all(seeds: range, warehouse: Path, java: Java, taking: type[Turns] = Turns) -> Counter[str]:
    """Tables of ``seeds``, some at a time: Dredge takes its turn on one while Java takes its own on another, or waits.

    (A write of Java to a cross-partition table sleeps for two seconds once it has read the keys.)
    Returns how many Dredge took part in (""), and how many it refused, by reason. All tables are tried before a failure is raised.
    """
    free: SimpleQueue[int] = SimpleQueue()
    for lane in range(1, LANES + 1):
        free.put(lane)

    def live(seed: int) -> str:
        lane = free.get()
        try:
            return live_a_life(seed, KINDS[seed % len(KINDS)], warehouse, partial(java, lane=lane), taking)
        finally:
            free.put(lane)

    counts: Counter[str] = Counter()
    failures: list[str] = []
    with ThreadPoolExecutor(LANES) as pool:
        lives = [pool.submit(live, seed) for seed in seeds]
        try:
            for life in lives:
                try:
                    counts[life.result()] += 1
                except AssertionError as failure:
                    failures.append(str(failure))
                    print(f"\nfailure {len(failures)}: {failure}", file=sys.__stderr__, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    assert not failures, f"{len(failures)} of {len(seeds)} tables failed:\n" + "\n\n".join(failures[:5])
    return counts


@pytest.fixture(autouse=TINY)
def row_groups_are_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows make a row group: a limit of bytes would make the first ones large and the others one row each."""
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 16)


@pytest.mark.paimon_java
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("share", SHARES)
def test_dredge_and_java_take_turns_on_tables_of_every_kind(
    share: range, tmp_path: Path, java: Java, testrun_uid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(testrun_uid, 16) % 10**6)
    seeds = range(first + share.start, first + share.stop, share.step)
    Catalog(str(tmp_path)).create_database("db")
    lives = live_all(seeds, tmp_path, java)
    with capsys.disabled():
        kinds = len({seed % len(KINDS) for seed in seeds})
        print(f"\nturns: {dict(lives)} of {len(seeds)} tables of {kinds} kinds, seeds {seeds}", file=sys.stderr)
        reports = [Turns.reports.get(f"db.t{seed}", []) for seed in seeds]
        for name in ("groups_spliced", "files_kept"):
            counts = [sum(getattr(report, name) for report in life) for life in reports]
            print(f"{name}: {sum(counts)} in {sum(map(bool, counts))} of {len(seeds)} tables", file=sys.stderr)
    assert lives == {"": len(seeds)}, "all of them are kinds that Dredge keeps up"


@pytest.mark.paimon_java
def test_of_the_versions_above_level_0_only_the_lowest_counts(tmp_path: Path, java: Java) -> None:
    """What a compaction found above its output it merged into it already: a sum would count it twice."""
    options = {"bucket": "1", "merge-engine": "aggregation", "changelog-producer": "lookup"}
    options |= {"fields.a.aggregate-function": "sum", "num-sorted-run.compaction-trigger": "5"}
    java("create", schema={"fields": FIELDS, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": options})
    java("write", rows=[{"p": 0, "k": k, "a": 2} for k in range(100)], compact="full")
    java("write", rows=[{"p": 0, "k": 7, "a": 10}], compact="minor")
    java("write", rows=[{"p": 0, "k": k, "a": 100} for k in (7, 8)], compact="none")
    assert {file["level"] for file in java("files")["files"]} == {0, 4, 5}
    rows = {row["k"]: row["a"] for row in Catalog(str(tmp_path)).table("db.t").to_arrow().to_pylist()}
    assert rows == {row["k"]: row["a"] for row in java("read")["rows"]}
    assert (rows[6], rows[7], rows[8]) == (2, 112, 102)


@pytest.mark.paimon_java
def test_of_rows_chosen_by_a_sequence_field_too_only_the_lowest_level_counts(tmp_path: Path, java: Java) -> None:
    """Levels of the time before the table looked keys up: the row of the larger value lies above, and Java does not see it."""
    options = {"bucket": "1", "num-levels": "6", "num-sorted-run.compaction-trigger": "2", "sequence.field": "b"}
    java("create", schema={"fields": FIELDS, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": options})
    java("write", rows=[{"p": 0, "k": k, "a": 2, "b": 5} for k in range(3000)], compact="full")
    for compact in ("none", "none", "minor"):
        java("write", rows=[{"p": 0, "k": k, "a": 10, "b": 4} for k in (7, 8)], compact=compact)
    assert {file["level"] for file in java("files")["files"]} == {4, 5}
    java("alter", changes=[{"change": "set_option", "key": "changelog-producer", "value": "lookup"}])

    def found() -> dict[int, int]:
        table = Catalog(str(tmp_path)).table("db.t")
        rows = {row["k"]: row["a"] for row in table.to_arrow().to_pylist()}
        assert rows == {row["k"]: row["a"] for row in java("read")["rows"]}
        key = pa.table({"p": pa.array([0], pa.int32()), "k": pa.array([7], pa.int32())})
        assert table.lookup(key).column("a").to_pylist() == [rows[7]]
        return rows

    assert [found()[k] for k in (6, 7, 8)] == [2, 10, 10]
    java("write", rows=[{"p": 0, "k": 7, "a": 1, "b": 1}, {"p": 0, "k": 8, "a": 3, "b": 9}], compact="none")
    before = found()
    assert [before[k] for k in (6, 7, 8)] == [2, 10, 3]
    Catalog(str(tmp_path)).table("db.t").compact(full=True)
    assert found() == before
