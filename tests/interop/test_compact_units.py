"""For the same tree the real Java Paimon compacts the same unit, file by file the same way; then each reads what the other left."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.options.table_options import PaimonVersion
from lsm_core.tree import (
    DataFile,
    ForceUpLevel0Compaction,
    LevelSortedRun,
    SortedRun,
    Strategy,
    UniversalCompaction,
)
from tests.interop.values import canonical, rows_of_arrow
from tests.support.peers import java_paimon
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.paimon_java
TREES = 600
COMPACT = {"write-only": "false"}


THROUGH_LEVEL_1 = {
    PaimonVersion.V1_4: (False, False),
    PaimonVersion.V2_0: (False, True),
    PaimonVersion.V2_1: (True, True),
}
"""By version: whether any unit, and a forced unit, includes all runs up to level 1, however large they are."""


def random_runs(rng: random.Random) -> list[tuple[int, int]]:
    """Level and size of each run, newest first."""
    sizes = [rng.choice([1, 2, 5, 10, 11, 99, 100, 101, 1000, rng.randrange(1, 5000)]) for _ in range(14)]
    upper = sorted(rng.sample(range(1, 6), rng.randrange(0, 5)))
    return list(zip([0] * rng.randrange(0, 8) + upper, sizes, strict=False))


def picked(strategy: Strategy, num_levels: int, listed: Sequence[tuple[int, int]]) -> tuple[int, list[int]] | None:
    runs = [
        LevelSortedRun(level, SortedRun((DataFile(str(i), level, size, 0, 0),)))
        for i, (level, size) in enumerate(listed)
    ]
    unit = strategy.pick(num_levels, runs)
    return None if unit is None else (unit.output_level, [int(file.name) for file in unit.files])


def test_java_picks_the_same_unit_of_random_runs(java: Java) -> None:
    rng = random.Random(6)
    counts = Counter[str]()
    for _ in range(TREES):
        listed = random_runs(rng)
        trigger, ratio, amp = rng.randint(1, 8), rng.choice([0, 1, 10, 50, 100]), rng.choice([0, 50, 200, 1000])
        levels = rng.choice([6, 7])
        forced, interval = rng.random() < 0.4, rng.choice([None, 1, 2])
        result = java(
            "pick",
            runs=[{"level": level, "size": size} for level, size in listed],
            trigger=trigger,
            num_levels=levels,
            size_ratio=ratio,
            max_size_amp=amp,
            force_up_level0=forced,
            max_interval=interval,
        )
        theirs = None if result["output_level"] is None else (result["output_level"], result["runs"])
        units = {}
        for version, (always, when_forced) in THROUGH_LEVEL_1.items():
            universal = UniversalCompaction(
                amp, ratio, trigger, through_level1=always, forced_through_level1=when_forced
            )
            strategy = ForceUpLevel0Compaction(universal, interval) if forced else universal
            units[version] = picked(strategy, levels, listed)
        case = f"{listed} trigger {trigger} ratio {ratio} amplification {amp} forced {forced}"
        assert units[java_paimon()] == theirs, case
        counts["picked" if theirs else "nothing picked"] += 1
        counts["changed by 2.0"] += units[PaimonVersion.V2_0] != units[PaimonVersion.V1_4]
        counts["changed by 2.1"] += units[PaimonVersion.V2_1] != units[PaimonVersion.V2_0]
    print(f"\n{TREES} trees: {dict(counts)}", file=sys.stderr)
    assert counts["picked"] > 100
    assert counts["nothing picked"] > 50
    assert counts["changed by 2.0"] > 0
    assert counts["changed by 2.1"] > 0


@dataclass
class Twins:
    """Table `a`, which Java compacts, and its copy `b`, which Dredge compacts."""

    warehouse: Path
    java: Java
    options: Mapping[str, str]

    def create(self, kind: str = "INT") -> None:
        fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "t", "type": kind}, {"name": "v", "type": "STRING"}]
        options = {
            "bucket": "1",
            "write-only": "true",
            "dredge.compaction.order-sensitive": "as-paimon",
            **self.options,
        }
        self.java("create", table="db.a", schema={"fields": fields, "primaryKeys": ["k"], "options": options})

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.java("write", table="db.a", rows=rows)

    def copy(self) -> None:
        folder = self.warehouse / "db.db"
        shutil.rmtree(folder / "b", ignore_errors=True)
        shutil.copytree(folder / "a", folder / "b")

    def table(self, name: str, options: Mapping[str, str] | None = None) -> Table:
        return Catalog(str(self.warehouse)).table(f"db.{name}").copy(dict(options or {}))

    def files(self, name: str) -> list[DataFile]:
        table = self.table(name)
        snapshot = snapshots.latest(table.store)
        assert snapshot is not None
        groups = bucket_groups(manifests.live_entries(table.store, snapshot))
        return [file for *_, entries in groups for file in tree_files(table.store, entries)]

    def compact(self, *, full: bool, options: Mapping[str, str] | None = None) -> dict[str, int]:
        """Both compact the same tree; returns what became of its files, in both: the level, -1 if rewritten."""
        self.copy()
        before = {file.name for file in self.files("a")}
        self.java("compact", table="db.a", full=full, options={**COMPACT, **(options or {})})
        self.table("b", options).compact(full=full)
        fates = []
        for name in ("a", "b"):
            kept = {file.name: file.level for file in self.files(name) if file.name in before}
            fates.append({file: kept.get(file, -1) for file in sorted(before)})
        assert fates[0] == fates[1], "java, dredge"
        rows = [self._per_level(name, before) for name in ("a", "b")]
        assert rows[0] == rows[1], "rows and deletes of new files by level: java, dredge"
        return fates[0]

    def _per_level(self, name: str, before: set[str]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for file in self.files(name):
            if file.name not in before:
                rows, deletes = found.get(file.level, (0, 0))
                found[file.level] = (rows + file.row_count, deletes + (file.delete_row_count or 0))
        return found

    def agree(self) -> list[str]:
        """Java and Dredge read both tables, and read the same."""
        answers = []
        for name in ("a", "b"):
            table = self.table(name)
            types = {field.name: field.type for field in table.store.schema.fields}
            answers.append(canonical(self.java("read", table=f"db.{name}")["rows"], types))
            answers.append(canonical(rows_of_arrow(table.to_arrow(), types), types))
        assert all(item == answers[0] for item in answers[1:]), (
            "java reads a, dredge reads a, java reads b, dredge reads b"
        )
        return answers[0]


@dataclass(frozen=True)
class TableNumbers:
    """The numbers that picking hangs on."""

    trigger: int
    ratio: int
    amp: int
    forced: bool

    def options(self) -> dict[str, str]:
        return {
            "num-sorted-run.compaction-trigger": str(self.trigger),
            "compaction.size-ratio": str(self.ratio),
            "compaction.max-size-amplification-percent": str(self.amp),
            "compaction.force-up-level-0": str(self.forced).lower(),
        }


ENGINES: list[dict[str, str]] = [
    {},
    {"sequence.field": "t"},
    {"merge-engine": "partial-update", "ignore-delete": "true"},
    {"merge-engine": "aggregation", "fields.t.aggregate-function": "max", "fields.t.ignore-retract": "true"},
]


def some_rows(rng: random.Random, retracts: bool) -> list[dict[str, Any]]:
    """From a few to many, close together or all over, so that some files overlap and some do not."""
    start, width, count = rng.randrange(0, 3000), rng.choice([20, 200, 3000]), rng.choice([1, 20, 200])
    kinds = ["+I", "+I", "+I", "-D"] if retracts else ["+I"]
    return [
        {"_kind": rng.choice(kinds), "k": start + rng.randrange(width), "t": rng.randrange(100), "v": f"{rng.random()}"}
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", one_in(2, range(4)))
def test_java_does_the_same_to_every_file_and_both_read_both(tmp_path: Path, java: Java, seed: int) -> None:
    rng = random.Random(seed)
    numbers = TableNumbers(rng.choice([2, 3, 4]), rng.choice([1, 20]), rng.choice([50, 200]), rng.random() < 0.3)
    sizes = {"target-file-size": rng.choice(["2 kb", "128 mb"]), "num-levels": rng.choice(["4", "6"])}
    engine = ENGINES[seed % len(ENGINES)]
    twins = Twins(tmp_path, java, {**numbers.options(), **sizes, **engine})
    twins.create()
    fates = Counter[str]()
    for _ in range(6):
        twins.write(some_rows(rng, retracts=len(engine) < 2))
        if rng.random() < 0.4:
            continue
        full = rng.random() < 0.25
        for level in twins.compact(full=full).values():
            fates["rewritten" if level < 0 else "left" if level == 0 else "upgraded or left above"] += 1
        twins.agree()
    print(f"\nseed {seed}: {dict(fates)}", file=sys.stderr)
    assert fates["rewritten"] > 0


def test_an_upgrade_keeps_the_file_whatever_format_and_compression_its_level_has(tmp_path: Path, java: Java) -> None:
    twins = Twins(
        tmp_path, java, {"file.format.per.level": "0:avro,5:parquet", "file.compression.per.level": "0:snappy"}
    )
    twins.create()
    twins.write([{"k": k, "t": k, "v": "v" * 50} for k in range(100)])
    (fate,) = twins.compact(full=True).values()
    assert fate == 5
    ours, theirs = (
        [file for file in java("files", table=f"db.{name}")["files"] if file["level"] == 5] for name in ("b", "a")
    )
    assert ours == theirs  # source, statistics, creation time and all the rest stay as they were
    assert [file["file_source"] for file in ours] == ["APPEND"]
    twins.agree()


def test_a_lone_file_with_deletes_is_rewritten_into_the_last_level_and_only_there(tmp_path: Path, java: Java) -> None:
    numbers = TableNumbers(5, 1, 200, forced=True)
    twins = Twins(tmp_path, java, {**numbers.options(), "num-levels": "4", "target-file-size": "1 kb"})
    twins.create()
    twins.write([{"k": k, "t": k, "v": "v"} for k in range(500)])
    assert set(twins.compact(full=True).values()) == {3}
    twins.write([{"_kind": "-D" if k % 2 else "+I", "k": k, "t": 1, "v": "x"} for k in range(5000, 5020)])
    assert Counter(twins.compact(full=False).values())[2] == 1
    assert Counter(twins.compact(full=True).values())[-1] == 1
    twins.agree()


PAST, FUTURE = 1_000_000_000, 2_100_000_000
EXPIRY = {"record-level.expire-time": "1 d", "record-level.time-field": "t"}


TIMES: dict[str, list[Any]] = {
    "INT": [PAST, FUTURE, None],
    "BIGINT": [PAST, FUTURE, PAST * 1000, FUTURE * 1000, None],
    "TIMESTAMP(0)": ["2001-09-09T01:46:40", "2036-07-18T13:20:00", None],
    "TIMESTAMP(6)": ["2001-09-09T01:46:40.123456", "2036-07-18T13:20:00.654321", None],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": ["2001-09-09T01:46:40.1Z", "2036-07-18T13:20:00.2Z", None],
}


@pytest.mark.parametrize(
    ("kind", "engine"),
    one_in(2, [*((kind, ENGINES[0]) for kind in TIMES), *(("INT", engine) for engine in ENGINES[1:])]),
    ids=lambda value: value if isinstance(value, str) else value.get("merge-engine", "deduplicate"),
)
def test_rows_expire_as_in_java(tmp_path: Path, java: Java, kind: str, engine: dict[str, str]) -> None:
    rng = random.Random(9)
    twins = Twins(tmp_path, java, {"num-sorted-run.compaction-trigger": "3", **engine})
    twins.create(kind)
    for write in range(4):
        kinds = ["+I", "+I", "-D"] if write and len(engine) < 2 else ["+I"]
        twins.write(
            [
                {"_kind": rng.choice(kinds), "k": key, "t": rng.choice(TIMES[kind]), "v": f"{write}-{key}"}
                for key in rng.choices(range(80), k=60)
            ]
        )
    twins.compact(full=True, options=EXPIRY)
    left = twins.agree()
    assert 10 < len(left) < 80


@pytest.mark.parametrize("stats", ["truncate(16)", "none"])
def test_a_compacted_table_loses_expired_rows_file_by_file_as_in_java(tmp_path: Path, java: Java, stats: str) -> None:
    twins = Twins(tmp_path, java, {"target-file-size": "2 kb", "metadata.stats-mode": stats})
    twins.create()
    rng = random.Random(4)
    rows = [{"k": k, "t": PAST if 900 < k < 1000 else FUTURE, "v": f"{rng.random()}"} for k in range(3000)]
    for start in range(0, 3000, 500):
        twins.write(rows[start : start + 500])
    twins.compact(full=True)
    assert len(twins.files("a")) > 2
    fates = Counter(twins.compact(full=True, options=EXPIRY).values())
    assert fates[-1] == (1 if stats != "none" else 0)
    assert fates[5] >= 2
    assert len(twins.agree()) == (3000 if stats == "none" else 2901)
