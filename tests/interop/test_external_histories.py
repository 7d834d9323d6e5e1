"""Random tables with external paths: Java and Dredge write, compact, change, expire and clean in turns, and read the same rows.

``DREDGE_EXTERNAL_HISTORIES`` (default 9 for each version of Java) is the number of histories of `make soak`,
``DREDGE_EXTERNAL_SEED`` the seed of the first; a failure tells the seed and the steps that led to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.metadata.external_paths import entropy_folders
from scripts.compatibility import VERSIONS
from tests.interop.conftest import peer_module
from tests.maintenance.tables import referenced
from tests.support.peers import JavaPaimon, PyPaimon, missing
from tests.support.samples import one_in, sample

Rows = dict[tuple[str, int], int]
_FIELDS = [
    {"name": "p", "type": "STRING NOT NULL"},
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "v", "type": "INT"},
]
_KEYED: list[dict[str, str]] = [
    {"bucket": "1", "changelog-producer": "none"},
    {"bucket": "2", "changelog-producer": "full-compaction"},
    {"bucket": "1", "changelog-producer": "input", "changelog-file.prefix": "changes-"},
    {"bucket": "-1", "index-file-in-data-file-dir": "true"},
    {"bucket": "1", "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
    {"bucket": "1", "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"},
]
_APPEND: list[dict[str, str]] = [
    {"bucket": "-1"},
    {"bucket": "-1", "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"},
    {"bucket": "-1", "data-file.path-directory": "below", "file-index.bitmap.columns": "k"},
]
_STRATEGIES = ["round-robin", "entropy-inject", "specific-fs", "weight-robin", "none"]
_STEPS = 9
_HISTORIES = int(os.environ.get("DREDGE_EXTERNAL_HISTORIES", "9"))
_SEED = int(os.environ.get("DREDGE_EXTERNAL_SEED", "0"))


@pytest.fixture(scope="module", params=sample(["session", *VERSIONS[1:]], lambda version: version == "session"))
def java(request: pytest.FixtureRequest) -> Iterator[JavaPaimon]:
    """The running JVM of one version; "session" is that of other tests."""
    if request.param == "session":
        yield request.getfixturevalue("java_session")
        return
    try:
        peer = JavaPaimon(request.param)
    except peer_module().PeerMissing as error:
        missing(f"Java Paimon {request.param}: {error}")
    yield peer
    peer.close()


class History:
    """One table, what is done to it, and the rows that it must have."""

    def __init__(self, seed: int, java: JavaPaimon, folder: Path) -> None:
        self.random, self.folder, self.peer = Random(seed), folder, java
        self.catalog = Catalog(folder / "wh", {"dredge.external-roots": f"{folder}/ext:rw"})
        self.catalog.create_database("db")
        self.steps: list[str] = []
        self.keyed = self.random.random() < 0.6
        options = dict(self.random.choice(_KEYED if self.keyed else _APPEND))
        self.sees_compacted_only = self.keyed and "deletion-vectors.enabled" in options
        strategy = self.random.choice(_STRATEGIES)
        places = [f"file://{folder}/ext/t/{name}" for name in ("a", "b", "c")[: self.random.randrange(1, 4)]]
        options |= {
            "data-file.external-paths": ",".join(places),
            "data-file.external-paths.strategy": strategy,
            "data-file.external-paths.specific-fs": "file",
            "num-sorted-run.compaction-trigger": "3",
        }
        options["data-file.external-paths.weights"] = ",".join(str(n + 1) for n in range(len(places)))
        self.rows: Rows = {}
        self.java("create", schema={
            "fields": _FIELDS, "partitionKeys": ["p"], "primaryKeys": ["p", "k"] if self.keyed else [], "options": options,
        })  # fmt: skip
        self.note(f"create {options}")
        self.write("java")

    def java(self, op: str, **arguments: Any) -> dict[str, Any]:
        return dict(self.peer.call(op, **{"warehouse": str(self.folder / "wh"), "table": "db.t", **arguments}))

    def note(self, step: str) -> None:
        self.steps.append(step)

    @property
    def table(self) -> Table:
        return self.catalog.table("db.t")

    def step(self) -> None:
        """One random deed of one of the two."""
        deeds: list[Callable[[str], None]] = [
            *[self.write] * 4, self.compact, self.compact, self.delete, self.expire, self.clean, self.change_strategy,
        ]  # fmt: skip
        deed, who = self.random.choice(deeds), self.random.choice(["java", "dredge"])
        self.note(f"{who} {deed.__name__}")
        deed(who)

    def write(self, who: str) -> None:
        start, value = self.random.randrange(40), self.random.randrange(1000)
        # Java's lookup makes local files of a partition's name, and cannot where the name has a slash.
        keys = [(self.random.choice(["x", "a b:%"]), start + number) for number in range(self.random.randrange(1, 7))]
        if not self.keyed:
            keys = [(p, k + 100 * len(self.rows)) for p, k in keys]
        new = {key: value + number for number, key in enumerate(keys)}
        if who == "java":
            rows = [{"p": p, "k": k, "v": v} for (p, k), v in new.items()]
            self.java("write", rows=rows, compact=self.random.choice(["none", "minor"]))
        else:
            columns = list(zip(*new, strict=True))
            self.table.write(
                pa.table(
                    {
                        "p": list(columns[0]),
                        "k": pa.array(columns[1], pa.int32()),
                        "v": pa.array(new.values(), pa.int32()),
                    }
                ),
                compact=self.random.random() < 0.5,
            )
        self.rows |= new

    def compact(self, who: str) -> None:
        if who == "java":
            self.java("compact", full=True)
        else:
            self.table.compact(full=True)

    def delete(self, who: str) -> None:
        """By Dredge; Java's driver deletes from tables with keys by row kinds only."""
        if self.sees_compacted_only or not self.rows:
            return
        bound = self.random.randrange(40)
        self.table.delete(f"k < {bound}")
        self.rows = {key: value for key, value in self.rows.items() if key[1] >= bound}

    def expire(self, who: str) -> None:
        later = int(time.time() * 1000) + 1000
        if who == "java":
            self.java("expire_snapshots", retain_max=2, retain_min=1, older_than_ms=later)
        else:
            self.table.expire_snapshots(retain_max=2, retain_min=1, older_than_ms=later)
            self.table.sweep_trash(now_ms=1 << 42)

    def clean(self, who: str) -> None:
        for path in self.folder.rglob("*"):
            if path.is_file() and "/dredge/" not in str(path):
                os.utime(path, (time.time() - 10 * 86_400, time.time() - 10 * 86_400))
        if who == "java":
            self.java("remove_orphans", older_than_ms=int((time.time() - 3 * 86_400) * 1000))
        else:
            self.table.remove_orphan_files(older_than_ms=3 * 86_400_000)
            self.table.sweep_trash(now_ms=1 << 42)

    def change_strategy(self, who: str) -> None:
        change = {"change": "set_option", "key": "data-file.external-paths.strategy"}
        strategy = self.random.choice(_STRATEGIES)
        self.note(strategy)
        if who == "java":
            self.java("alter", changes=[{**change, "value": strategy}])
        else:
            self.catalog.alter_table("db.t", [SchemaChange.set_option(change["key"], strategy)])

    def check(self) -> None:
        if self.sees_compacted_only:
            self.table.compact(full=True)
        expected = sorted((p, k, v) for (p, k), v in self.rows.items())
        ours = sorted(tuple(row.values()) for row in self.table.to_arrow().to_pylist())
        theirs = sorted(tuple(row[name] for name in ("p", "k", "v")) for row in self.java("read")["rows"])
        assert (ours, theirs) == (expected, expected)

    def end(self) -> None:
        """No lost file and none too many; another file in the place stays when the table is dropped."""
        assert [report.text for report in self.table.check() if not report.passed and not report.warn] == []
        self.expire("dredge")
        self.clean("dredge")
        self.check()
        names = referenced(self.table)
        outside = [path for path in (self.folder / "ext").rglob("*") if path.is_file()]
        assert {path.name for path in outside} <= names
        stranger = self.folder / "ext" / "t" / "a" / "mine.txt"
        stranger.parent.mkdir(parents=True, exist_ok=True)
        stranger.write_text("x")
        self.catalog.drop_table("db.t")
        assert [path for path in (self.folder / "ext").rglob("*") if path.is_file()] == [stranger]


@pytest.mark.paimon_java
@pytest.mark.parametrize("seed", sample(range(_SEED, _SEED + _HISTORIES), lambda seed: seed == _SEED))
def test_java_and_dredge_take_turns(
    seed: int, java: JavaPaimon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    history = History(seed, java, tmp_path)
    try:
        for _ in range(_STEPS):
            history.step()
            history.check()
        history.end()
    except BaseException as error:
        error.add_note(f"seed {seed}: {'; '.join(history.steps)}")
        raise


@pytest.mark.paimon_java
def test_entropy_folders_are_those_of_java(java: JavaPaimon, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "wh", {"dredge.external-roots": f"{tmp_path}/ext:rw"})
    catalog.create_database("db")
    options = {
        "bucket": "-1",
        "data-file.external-paths": f"file://{tmp_path}/ext",
        "data-file.external-paths.strategy": "entropy-inject",
    }
    place = {"warehouse": str(tmp_path / "wh"), "table": "db.t"}
    java.call(
        "create", **place, schema={"fields": _FIELDS, "partitionKeys": ["p"], "primaryKeys": [], "options": options}
    )
    for number in range(4):
        java.call("write", **place, rows=[{"p": "x", "k": number, "v": 1}], compact="none")
    paths = catalog.table("db.t$files").to_arrow()["file_path"].to_pylist()
    assert len(paths) == 4
    for path in paths:
        folder, _, name = path.rpartition("/")
        assert folder == f"file:{tmp_path}/ext/p=x/bucket-0/{entropy_folders(name)}"


@pytest.mark.parametrize(
    ("keyed", "strategy"), one_in(4, [(k, s) for k in (False, True) for s in ("round-robin", "entropy-inject")], 1)
)
def test_pypaimon_and_dredge_take_turns(tmp_path: Path, pypaimon: PyPaimon, keyed: bool, strategy: str) -> None:
    """pypaimon writes into the external paths too, and reads what Dredge compacted there."""
    catalog = Catalog(str(tmp_path), {"dredge.external-roots": f"{tmp_path}/ext:rw"})
    catalog.create_database("db")
    options = {
        "bucket": "1" if keyed else "-1",
        "data-file.external-paths": f"file://{tmp_path}/ext/a,file://{tmp_path}/ext/b",
        "data-file.external-paths.strategy": strategy,
    }
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    catalog.create_table("db.t", Schema(fields, ["k"] if keyed else [], [], options))
    for number in range(3):
        data = pa.table({"k": [10 * number, 10 * number + 1], "v": [number, number]}, fields)
        if number == 1:
            pypaimon.write("db.t", data)
        else:
            catalog.table("db.t").write(data)
    for full in (False, True):
        if full:
            catalog.table("db.t").compact(full=True)
        mine = catalog.table("db.t").to_arrow().sort_by("k")
        assert mine.column("k").to_pylist() == [0, 1, 10, 11, 20, 21]
        assert pypaimon.read("db.t").select(["k", "v"]).sort_by("k").to_pylist() == mine.to_pylist()
    assert not list((tmp_path / "db.db").rglob("*.parquet"))
