"""Tables with a fallback branch: Java and Dredge write, compact, expire and clean both branches, and read the same rows.

``DREDGE_FALLBACKS`` tables are drawn (default 2; 100 in soak); a failure tells its seed and the steps.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError
from lsm_core.metadata import manifests, snapshots
from lsm_core.sql.local_engine import LocalEngine
from tests.support.peers import peer_module

Java = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.paimon_java
LIVES = int(os.environ.get("DREDGE_FALLBACKS", "2"))
STEPS = 9
COUNTS = [
    pytest.param(LIVES, id="sample", marks=pytest.mark.timeout(max(300, 60 * LIVES))),
    pytest.param(100, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]
ARROW = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())]
)
FILTERS = (
    None,
    [["p", "=", 1]],
    [["v", ">", 50]],
    [["p", ">", 0], ["v", "<", 40]],
    [["k", "=", 3]],
)
APPEND = {"bucket": "-1", "dredge.compaction.mergeable-branches": "as-paimon"}
KINDS: tuple[dict[str, str], ...] = (
    {"bucket": "1"},
    {"bucket": "-1", "deletion-vectors.enabled": "true"},
    {"bucket": "2", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    {"bucket": "1", "merge-engine": "first-row"},
)


class Life:
    """One table with branch `other`, and what both engines do to it, drawn from a seed."""

    def __init__(self, seed: int, warehouse: Path, java: Java) -> None:
        self.random, self.warehouse, self.name = Random(seed), warehouse, f"db.t{seed}"
        self.java, self.told = java, [f"seed {seed}"]
        self.keyed = self.random.random() < 0.7

    def table(self, branch: str = "") -> Table:
        return Catalog(str(self.warehouse)).table(self.name + branch)

    def create(self) -> None:
        random = self.random
        options = dict(random.choice(KINDS)) if self.keyed else dict(APPEND)
        not_null = " NOT NULL" if self.keyed else ""
        fields = [{"name": name, "type": f"INT{not_null}" if name != "v" else "INT"} for name in ("p", "k", "v")]
        keys = ["p", "k"] if self.keyed else []
        schema = {"fields": fields, "primaryKeys": keys, "partitionKeys": ["p"], "options": options}
        self.told.append(str(schema))
        self.java("create", table=self.name, schema=schema)
        if random.random() < 0.5:
            self.write("")
        self.java("branch", table=self.name, name="other")
        key = random.choice(["scan.fallback-branch", "scan.fallback-branch", "scan.primary-branch"])
        self.told.append(key)
        self.java("alter", table=self.name, changes=[{"change": "set_option", "key": key, "value": "other"}])

    def write(self, branch: str) -> None:
        partitions = self.random.sample(range(4), self.random.randrange(1, 3))
        rows = [
            {"p": self.random.choice(partitions), "k": self.random.randrange(8), "v": self.random.randrange(100)}
            for _ in range(self.random.randrange(1, 9))
        ]
        if self.random.random() < 0.5:
            self.told.append(f"dredge writes {branch} {rows}")
            self.table(branch).write(pa.Table.from_pylist(rows, schema=ARROW if self.keyed else None), compact=False)
        else:
            self.told.append(f"java writes {branch} {rows}")
            self.java("write", table=self.name + branch, rows=rows, compact=self.random.choice(["none", "minor"]))

    @staticmethod
    def holds_files(table: Table) -> bool:
        newest = snapshots.latest(table.store)
        return newest is not None and bool(manifests.live_entries(table.store, newest).num_rows)

    def step(self) -> None:
        branch = self.random.choice(["", "$branch_other"])
        what = self.random.choice(["write", "write", "write", "compact", "expire", "clean", "drop"])
        if what == "write":
            return self.write(branch)
        self.told.append(f"{what} {branch}")
        table = self.table(branch)
        if what == "compact" and self.holds_files(table) and self.random.random() < 0.5:
            self.java("compact", table=self.name + branch, full=True)
        elif what == "compact":
            table.compact(full=True)
        elif what == "expire":
            table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
        elif what == "clean":
            self.table().remove_orphan_files(older_than_ms=int(time.time() * 1000) - 1)
        else:
            table.drop_partitions([{"p": self.random.randrange(4)}])
        table.sweep_trash(now_ms=1 << 42)
        return None

    def rows_agree(self) -> None:
        for chosen in FILTERS:
            theirs = sorted((r["p"], r["k"], r["v"]) for r in self.java("read", table=self.name, filter=chosen)["rows"])
            tests = None if chosen is None else [tuple(test) for test in chosen]
            ours = sorted(tuple(row.values()) for row in self.table().to_arrow(filter=tests).to_pylist())
            assert ours == theirs, f"{chosen}: Dredge reads {ours}, Java {theirs}"
        streamed = pa.Table.from_batches(self.table().to_batches(), self.table().schema.arrow_schema)
        assert sorted(tuple(row.values()) for row in streamed.to_pylist()) == sorted(
            tuple(row.values()) for row in self.table().to_arrow().to_pylist()
        )
        for system in ("$ro", "$audit_log"):
            theirs = sorted((r["p"], r["k"], r["v"]) for r in self.java("read", table=self.name + system)["rows"])
            found = self.table(system).to_arrow(["p", "k", "v"]).to_pylist()
            assert sorted(tuple(row.values()) for row in found) == theirs, system


@pytest.mark.parametrize("count", COUNTS)
def test_both_engines_read_missing_partitions_from_the_other_branch(
    java: Java, tmp_path: Path, testrun_uid: str, count: int
) -> None:
    Catalog(str(tmp_path)).create_database("db")
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(testrun_uid, 16) % 10**6)
    failures: list[str] = []
    for seed in range(first, first + count):
        life = Life(seed, tmp_path, java)
        try:
            life.create()
            for _ in range(STEPS):
                life.step()
                life.rows_agree()
        except (AssertionError, DredgeError, pa.ArrowException, peer_module().PeerError) as error:
            failures.append("\n".join([*life.told, f"{type(error).__name__}: {error}"]))
            print(f"\nfailure {len(failures)}: {failures[-1]}", file=sys.__stderr__, flush=True)
    assert not failures, f"{len(failures)} of {count} tables failed:\n" + "\n\n".join(failures[:5])


@pytest.mark.parametrize("key", ["scan.fallback-branch", "scan.primary-branch"])
def test_partitions_of_the_other_branch_are_listed(java: Java, tmp_path: Path, key: str) -> None:
    fields = [{"name": name, "type": "INT NOT NULL"} for name in ("p", "k", "v")]
    java("create", schema={"fields": fields, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": KINDS[0]})
    java("branch", name="other")
    java("write", rows=[{"p": p, "k": 1, "v": 1} for p in (1, 2)])
    java("write", table="db.t$branch_other", rows=[{"p": p, "k": k, "v": 1} for p in (2, 7) for k in (8, 9)])
    java("alter", changes=[{"change": "set_option", "key": key, "value": "other"}])
    catalog = Catalog(str(tmp_path))
    counts = {row["partition"]: row["record_count"] for row in java("read", table="db.t$partitions")["rows"]}
    assert counts == {"p=1": 1, "p=2": 1 if key.endswith("fallback-branch") else 2, "p=7": 2}
    listed = catalog.table("db.t$partitions").to_arrow().to_pylist()
    assert {row["partition"]: row["record_count"] for row in listed} == counts
    listed = catalog.table("sys.partitions").to_arrow().to_pylist()
    assert {row["partition_name"]: row["record_count"] for row in listed} == counts
    rows = LocalEngine().answer(catalog, "SELECT k FROM db.t WHERE p = sys.max_pt('db.t')").read_all()
    assert sorted(rows.column(0).to_pylist()) == [8, 9]
