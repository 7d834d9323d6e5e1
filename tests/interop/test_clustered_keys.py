"""Primary-key tables clustered by other columns (`pk-clustering-override`): Java and Dredge take turns.

Both write; Java compacts. After each step both read the same rows, with and without filters; at the end both stream the
same changes. Sample: one table; soak: 40 for each version. Not with Java 1.4.2, whose compaction leaves two rows of a
key, so that its own readers return the key twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError, UnsupportedFeature
from tests.support.peers import JavaPaimon, peer_module

Row = dict[str, Any]
NAMES = ("k", "g", "v", "s")
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        pa.field("g", pa.string(), nullable=False),
        ("v", pa.int32()),
        ("s", pa.string()),
    ]
)
FIELDS = [
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "g", "type": "STRING NOT NULL"},
    {"name": "v", "type": "INT"},
    {"name": "s", "type": "STRING"},
]
LONG = "a" * 20
"""Text that statistics cut."""
VERSIONS = [
    pytest.param("2.0.0", 1, id="sample"),
    *(
        pytest.param(version, 40, id=f"many {version}", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])
        for version in ("2.0.0", "2.1-SNAPSHOT")
    ),
]


class Life:
    """One table, and what both do to it, drawn from a seed."""

    def __init__(self, seed: int, warehouse: Path, peer: JavaPaimon) -> None:
        self.random, self.name, self.warehouse, self.peer = Random(seed), f"db.t{seed}", warehouse, peer
        self.story: list[str] = []
        self.catalog = Catalog(str(warehouse))
        self.first_row = self.random.random() < 0.3
        self.keys = self.random.choice([["k"], ["k", "g"]])
        options = {
            "bucket": self.random.choice(["1", "2"]),
            "pk-clustering-override": "true",
            "clustering.columns": self.random.choice(["s", "v", "s,v"]),
            "file.format": self.random.choice(["parquet", "parquet", "orc", "avro"]),
            "target-file-size": self.random.choice(["2 kb", "128 mb"]),
        }
        if self.first_row:
            options["merge-engine"] = "first-row"
        else:
            options |= {"deletion-vectors.enabled": "true", "changelog-producer": self.random.choice(["none", "input"])}
        self.story.append(f"create {options}, key {self.keys}")
        self.java("create", schema={"fields": FIELDS, "primaryKeys": self.keys, "options": options})

    def java(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Call Java on the table."""
        return dict(self.peer.call(op, warehouse=str(self.warehouse), table=self.name, **arguments))

    def row(self) -> Row:
        """A row; deletes where the merge engine takes them."""
        random = self.random
        kind = "-D" if not self.first_row and random.random() < 0.25 else "+I"
        text = LONG if self.keys == ["k"] else random.choice([LONG, "b", f"{LONG}c"])
        value, other = random.choice([None, *range(100)]), random.choice([None, "x", "y", "z", ""])
        return {"k": random.randrange(30), "g": text, "v": value, "s": other, "_kind": kind}

    def step(self) -> None:
        """A write of one of the two, then perhaps a compaction by Java."""
        rows = [self.row() for _ in range(self.random.choice([1, 5, 9, 60]))]
        ours, roll = self.random.random() < 0.5, self.random.random()
        self.story.append(f"{'dredge' if ours else 'java'} writes, roll {roll:.2f}: {json.dumps(rows)}")
        plain = pa.Table.from_pylist([{name: row[name] for name in NAMES} for row in rows], SCHEMA)
        table = self.catalog.table(self.name)
        if not ours:
            self.java("write", rows=rows, compact=self.random.choice(["none", "minor", "full"]))
        elif roll < 0.1 and not self.first_row:
            table.delete(f"k = {rows[0]['k']}")
        elif roll < 0.2:
            table.write(plain.slice(0, 1), overwrite=True)
        else:
            table.write(plain, pa.array([row["_kind"] for row in rows]))
        if self.random.random() < 0.3:
            full = self.random.random() < 0.5
            self.story.append(f"java compacts, full={full}")
            self.java("compact", full=full)

    def rows_agree(self, test: tuple[str, str, Any] | None = None) -> None:
        """Both read the same rows, with a filter if given."""
        column, op, value = test or ("", "", None)
        theirs = self.java("read", **({"filter": [[column, op.replace(" ", "_"), value]]} if test else {}))["rows"]
        ours = self.catalog.table(self.name).to_arrow(
            filter=None if test is None else [(column, op) if value is None else test]
        )
        assert _texts(ours.to_pylist()) == _texts(theirs), test

    def changes_agree(self) -> None:
        """Both stream the same changes."""
        stream = self.catalog.table(self.name).new_stream_scan(from_snapshot=1)
        for event in self.java("stream_read", from_snapshot=1)["events"]:
            batch = stream.next()
            assert batch is not None
            assert batch.snapshot_id == event["snapshot"]
            ours = [{"_kind": row.pop("_ROW_KIND"), **row} for row in batch.to_arrow().to_pylist()]
            assert _texts(ours, "_kind") == _texts(event["rows"], "_kind")
        assert stream.next() is None


def _texts(rows: list[Row], *more: str) -> list[str]:
    return sorted(repr([row[name] for name in (*more, *NAMES)]) for row in rows)


@pytest.fixture
def peer(version: str, java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """A JVM of one version."""
    return java_of(version)


@pytest.mark.paimon_java
@pytest.mark.parametrize(("version", "count"), VERSIONS)
def test_both_read_and_write(peer: JavaPaimon, tmp_path: Path, testrun_uid: str, count: int) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    first = int(os.environ.get("DREDGE_CLUSTERED_SEED") or int(testrun_uid, 16) % 10**6)
    for seed in range(first, first + count):
        life = Life(seed, tmp_path, peer)
        try:
            for _ in range(5 if count == 1 else 8):
                life.step()
                life.rows_agree()
                at = life.random.randrange(30)
                tests = [("k", "=", at), ("k", ">", at), ("v", ">", 50), ("s", "=", "x"), ("s", "is null", None)]
                for test in life.random.sample([*tests, ("g", "=", f"{LONG}c")], 2):
                    life.rows_agree(test)
            life.changes_agree()
            log = life.peer.call("read", warehouse=str(tmp_path), table=f"{life.name}$audit_log")["rows"]
            ours = catalog.table(f"{life.name}$audit_log").to_arrow().to_pylist()
            assert _texts(ours, "rowkind") == _texts(log, "rowkind")
            table = catalog.table(life.name)
            assert [report.text for report in table.check() if not report.passed and not report.warn] == []
            assert table.health()
        except (AssertionError, DredgeError, peer_module().PeerError, pa.ArrowException) as error:
            story = "\n".join(life.story)
            raise AssertionError(f"DREDGE_CLUSTERED_SEED={seed}\n{story}\n{type(error).__name__}: {error}") from error
    for refused in (
        lambda: table.compact(full=True),
        lambda: table.new_stream_scan().next().to_arrow(),
        lambda: table.lookup(pa.table({"k": [1], "g": ["b"]}).select(life.keys)),
    ):
        with pytest.raises(UnsupportedFeature, match="clustered by other columns"):
            refused()
