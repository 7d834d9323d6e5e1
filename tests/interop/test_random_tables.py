"""Random tables: a random schema, written, altered and compacted by Dredge and Java in turn; both read the same after every step.

``DREDGE_RANDOM_SECONDS`` (default 5) is the time spent, ``DREDGE_RANDOM_SEED`` the first table's seed; a failure tells its seed and
the steps that led to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import latest_schema
from lsm_core.storage import LocalFileIO
from lsm_core.types import DataType, TypeRoot, parse
from tests.interop.schema_twins import RandomSteps, Step, as_change
from tests.interop.values import Limits, Value, anything, canonical, difference, rows_of_arrow, table_of
from tests.support.peers import refusal_of

Java = Callable[..., dict[str, Any]]

_STEPS = 9
_SCALARS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(20, 4)", "CHAR(4)", "VARCHAR(5)",
    "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)",
    "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
]  # fmt: skip
_KEYS = [
    "INT",
    "BIGINT",
    "STRING",
    "VARCHAR(5)",
    "DECIMAL(20, 4)",
    "DATE",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "BYTES",
    "SMALLINT",
    "BOOLEAN",
]
_PARTITIONS = ["INT NOT NULL", "VARCHAR(5) NOT NULL", "DATE NOT NULL", "BOOLEAN NOT NULL"]


def random_type(random: Random, depth: int = 0) -> Any:
    """A type as JSON: nested one time in four, two deep at most."""
    if depth >= 2 or random.random() < 0.72:
        return random.choice(_SCALARS) + random.choice(["", "", "", "" if depth == 0 else " NOT NULL"])
    inner = random_type(random, depth + 1)
    kind = random.choice(["ARRAY", "MAP", "ROW", "MULTISET"])
    if kind == "ARRAY":
        return {"type": "ARRAY", "element": inner}
    if kind == "MAP":
        return {"type": "MAP", "key": random.choice(["STRING NOT NULL", "INT NOT NULL"]), "value": inner}
    if kind == "MULTISET":
        return {"type": "MULTISET", "element": random.choice(["STRING NOT NULL", "INT NOT NULL"])}
    fields = [inner, *(random_type(random, depth + 1) for _ in range(random.randrange(3)))]
    return {"type": "ROW", "fields": [{"id": i, "name": f"f{i}", "type": kind} for i, kind in enumerate(fields)]}


class RandomTable:
    """One table and everything that is done to it, drawn from a seed."""

    def __init__(self, seed: int, warehouse: Path, java: Java) -> None:
        self.random, self.name, self.warehouse = Random(seed), f"t{seed}", warehouse
        self.java: Java = lambda op, **given: java(op, table=f"db.{self.name}", **given)
        self.catalog = Catalog(str(warehouse))
        self.steps = RandomSteps(seed)
        self.told: list[str] = []
        self.written = False
        self.kept: list[dict[str, Value]] = []
        """Rows whose keys are written again."""

    @property
    def schema(self) -> TableSchema:
        """The newest, from disk."""
        found = latest_schema(LocalFileIO(), str(self.warehouse / "db.db" / self.name))
        assert found is not None
        return found

    @property
    def types(self) -> dict[str, DataType]:
        """Columns in order."""
        return {field.name: field.type for field in self.schema.fields}

    def create(self) -> None:
        """By Java."""
        self.keyed = self.random.random() < 0.65
        self.partitioned = self.random.random() < 0.4
        columns = {"p": self.random.choice(_PARTITIONS)} if self.partitioned else {}
        keys = [f"k{i}" for i in range(self.random.choice([1, 1, 2]))] if self.keyed else []
        columns |= {key: f"{self.random.choice(_KEYS)} NOT NULL" for key in keys}
        columns |= {f"v{i}": random_type(self.random) for i in range(self.random.randrange(2, 8))}
        options = {
            "bucket": self.random.choice(["1", "2"]) if self.keyed else "-1",
            "file.format": self.random.choice(["parquet", "parquet", "orc", "avro"]),
            "metadata.stats-mode": self.random.choice(["truncate(16)", "full", "counts", "none"]),
            "metadata.stats-dense-store": self.random.choice(["true", "false"]),
            "file.compression": self.random.choice(["zstd", "zstd", "snappy", "none"]),
            "disable-explicit-type-casting": self.random.choice(["false", "true"]),
        }
        if self.keyed:
            options["data-file.thin-mode"] = self.random.choice(["true", "false"])
        if (
            options["file.format"] == "avro"
        ):  # Java cannot read its own Avro files with a MULTISET of anything but texts
            options["file.compression"] = "zstd"
            text = json.dumps(columns).replace("TIMESTAMP(9)", "TIMESTAMP(6)")
            columns = json.loads(text.replace('"MULTISET", "element": "INT', '"MULTISET", "element": "STRING'))
        fields = [{"name": name, "type": kind} for name, kind in columns.items()]
        schema = {
            "fields": fields, "primaryKeys": [*(["p"] if self.keyed and self.partitioned else []), *keys],
            "partitionKeys": ["p"] if self.partitioned else [], "options": options,
        }  # fmt: skip
        self.told.append(f"create {json.dumps(schema)}")
        self.java("create", schema=schema)

    def step(self) -> None:
        """One random deed of one of the two."""
        ours = self.random.random() < 0.5
        who = "dredge" if ours else "java"
        roll = self.random.random() if self.written else 0.0
        if roll < 0.5:
            self.write(ours=ours)
        elif roll < 0.82:
            change = self.steps.step(json.loads(self.schema.to_json()))
            self.told.append(f"{who} {json.dumps(change)}")
            self.alter(change, ours=ours)
        else:
            full = self.random.random() < 0.6
            self.told.append(f"{who} compacts, full={full}")
            self.compact(ours=ours, full=full)

    def compact(self, *, ours: bool, full: bool) -> None:
        """By one of them; what it refuses (a null in a column that has become NOT NULL) the other must refuse too."""
        deeds: list[Callable[[], object]] = [
            lambda: self.java("compact", full=full),
            lambda: self.catalog.table(f"db.{self.name}").compact(full=full),
        ]
        refusal = refusal_of(deeds[ours])
        if refusal:
            self.told.append(f"  refused: {refusal}")
            assert refusal_of(deeds[not ours]), f"only {'Dredge' if ours else 'Java'} cannot compact: {refusal}"

    def write(self, *, ours: bool) -> None:
        """Some rows, half of them with keys that are there."""
        types, count = self.types, self.random.choice([1, 5, 20])
        rows = [
            {name: anything(self.random, kind, limits=Limits.CASTS) for name, kind in types.items()}
            for _ in range(count)
        ]
        keys, self.written = self.schema.primary_keys, True
        for row in rows:
            if keys and self.kept and self.random.random() < 0.5:
                row.update({key: value for key, value in self.random.choice(self.kept).items() if key in keys})
        self.kept = [{key: row[key] for key in keys} for row in rows]
        kind = "-D" if keys and self.random.random() < 0.2 else "+I"
        self.told.append(f"{'dredge' if ours else 'java'} writes {kind} {json.dumps(rows)[:3000]}")
        if ours:
            self.catalog.table(f"db.{self.name}").write(
                table_of(rows, types), pa.array([kind] * count) if keys else None
            )
        else:
            self.java(
                "write", rows=[{"_kind": kind, **row} for row in rows], compact=self.random.choice(["none", "minor"])
            )

    def alter(self, change: Step, *, ours: bool) -> None:
        """A change of schema; one that is refused changes nothing."""
        before = self.schema
        names = {field.name for field in before.fields if _is_fixed(field.name, before)}
        target = change.get("name")
        if (
            isinstance(target, list)
            and target
            and target[0] in names
            and change["change"] in ("rename_column", "update_type")
        ):
            return  # keys written so far could not be drawn again
        if str(change.get("type", "")).startswith("TIME("):
            return  # of a time before 1970 Java makes a negative time of day, Dredge the one that a clock showed
        refusal = refusal_of(
            lambda: (
                self.catalog.alter_table(f"db.{self.name}", [as_change(change)])
                if ours
                else self.java("alter", changes=[change])
            )
        )
        if refusal:
            self.told.append(f"  refused: {refusal}")

    def agree(self) -> bool:
        """Both read the same; False when neither can read the table any more (a value that cannot be cast)."""
        types = self.types
        theirs: list[str] = []
        ours: list[str] = []
        java_said = refusal_of(lambda: theirs.extend(canonical(self.java("read")["rows"], types)))
        refusal = refusal_of(
            lambda: ours.extend(
                canonical(rows_of_arrow(self.catalog.table(f"db.{self.name}").to_arrow(), types), types)
            )
        )
        if "is no STRING" in refusal:
            return False  # BYTES that have become text: Java shows other characters, Dredge says that there are none
        if "before the column's type changed" in refusal and not java_said and len(theirs) < self.stored_rows():
            return False  # Dredge casts whole columns, so a value of a row that merging drops is in its way too
        assert bool(refusal) == bool(java_said), (
            f"only one of them can read; Dredge: {refusal or 'fine'}; Java: {java_said or 'fine'}"
        )
        if refusal:
            return False
        assert ours == theirs, "Dredge (found) and Java (expected): " + difference(ours, theirs)
        return True

    def stored_rows(self) -> int:
        """Versions in the files, those that no read gives among them."""
        return sum(file["row_count"] for file in self.java("files")["files"])


def _is_fixed(name: str, schema: TableSchema) -> bool:
    return name in schema.primary_keys or name in schema.partition_keys


def live_a_life(seed: int, warehouse: Path, java: Java) -> int:
    """One table from creation to the last step; returns the steps taken."""
    table = RandomTable(seed, warehouse, java)
    try:
        table.create()
        for number in range(_STEPS):
            table.step()
            if not table.agree():
                return number
    except Exception as error:
        raise AssertionError(
            f"DREDGE_RANDOM_SEED={seed}:\n" + "\n".join(table.told) + f"\n{type(error).__name__}: {error}"
        ) from error
    return _STEPS


@pytest.mark.paimon_java
@pytest.mark.timeout(3600)
def test_random_tables_read_the_same_in_both_after_every_step(
    tmp_path: Path, java: Java, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("DREDGE_RANDOM_SECONDS", "5"))
    first = seed = int(os.environ.get("DREDGE_RANDOM_SEED") or time.time_ns() % 10**9)
    Catalog(str(tmp_path)).create_database("db")
    until, steps = time.monotonic() + seconds, 0
    while seed == first or time.monotonic() < until:
        steps += live_a_life(seed, tmp_path, java)
        seed += 1
    with capsys.disabled():
        print(f"\nrandom tables: DREDGE_RANDOM_SEED={first}, {seed - first} tables, {steps} steps", file=sys.stderr)
    assert steps > 0


def test_random_types_can_be_read() -> None:
    random = Random(1)
    assert {parse(random_type(random)).root for _ in range(300)} >= {
        TypeRoot.ROW,
        TypeRoot.MAP,
        TypeRoot.ARRAY,
        TypeRoot.MULTISET,
    }
