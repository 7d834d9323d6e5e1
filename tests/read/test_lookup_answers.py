"""A lookup says what a full read says of the same keys: random tables of every engine, and all of Java's tables with a key."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup import lookup
from tests.golden.cases import Case, cases
from tests.support.samples import examples, one_in
from tests.support.stores import read

_DAY = dt.date(1999, 12, 31)
_NOON = dt.datetime(2024, 2, 29, 12)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [*range(-9, 9), -(2**31), 2**31 - 1]),
    "long": (pa.int64(), [n * 10**12 for n in range(-9, 9)]),
    "tiny": (pa.int8(), list(range(-10, 10))),
    "text": (
        pa.string(),
        ["", "\0", "a", "a\0", "a\0b", "ab", *(f"one long common beginning {n}" for n in range(14)), "é"],
    ),
    "bytes": (pa.binary(), [b"", b"\0", b"\xff", b"\xff\0", *(bytes([7] * n) for n in range(1, 15))]),
    "decimal": (pa.decimal128(10, 2), [Decimal(n) / 4 for n in range(-9, 9)]),
    "wide decimal": (pa.decimal128(30, 3), [Decimal(n) * 10**20 for n in range(-9, 9)]),
    "date": (pa.date32(), [_DAY + dt.timedelta(n * 99) for n in range(-9, 9)]),
    "time": (pa.timestamp("us"), [_NOON + dt.timedelta(microseconds=n) for n in range(-9, 9)]),
    "moment": (pa.timestamp("ms", "UTC"), [_NOON.replace(tzinfo=dt.UTC) + dt.timedelta(n) for n in range(9)]),
    "double": (pa.float64(), [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, *(n / 3 for n in range(-6, 6))]),
    "float": (pa.float32(), [float("nan"), 0.0, -0.0, *(n / 4 for n in range(-6, 6))]),
    "flag": (pa.bool_(), [True, False]),
}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "sequence groups": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "v",
        "ignore-delete": "true",
    },
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "sequence.field": {"sequence.field": "g"},
}


def shown(row: dict[str, Any], names: list[str]) -> str:
    """A row's values to the bit, so that NaN is NaN and the zeros differ."""
    return repr([struct.pack(">d", v) if isinstance(v, float) and v == v else v for v in map(row.get, names)])


def is_answer(store: TableStore, full: pa.Table, keys: pa.Table, columns: list[str] | None = None) -> None:
    """Rows of ``full`` with one of ``keys``, in the order in which these come first."""
    names = list(store.schema.primary_keys)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in full.to_pylist():
        rows.setdefault(shown(row, names), []).append(row)
    asked = list(dict.fromkeys(shown(row, names) for row in keys.to_pylist()))
    every = [name for name in names if columns is not None and name not in columns] + (columns or full.column_names)
    expected = [shown(row, every) for key in asked for row in rows.get(key, [])]
    found = lookup(store, keys, columns)
    assert found.column_names == every
    assert [shown(row, every) for row in found.to_pylist()] == expected


def pool(kinds: list[str], random: np.random.Generator, count: int, partitions: int = 0) -> pa.Table:
    """Distinct keys of columns k0, k1, ...; partition columns have few values."""
    drawn: dict[str, list[Any]] = {}
    for i, kind in enumerate(kinds):
        values = KEYS[kind][1][-3:] if i < partitions else KEYS[kind][1]
        drawn[f"k{i}"] = [values[n] for n in random.integers(0, len(values), count)]
    made = pa.table({name: pa.array(drawn[name], KEYS[kind][0]) for name, kind in zip(drawn, kinds, strict=True)})
    first = {shown(row, list(drawn)): at for at, row in reversed(list(enumerate(made.to_pylist())))}
    return made.take(pa.array(sorted(first.values())))


def new_table(place: str, kinds: list[str], partitions: int, options: dict[str, str]) -> Table:
    keys = [f"k{i}" for i in range(len(kinds))]
    fields = [pa.field(name, KEYS[kind][0], nullable=False) for name, kind in zip(keys, kinds, strict=True)]
    columns = pa.schema([("v", pa.int32()), *fields, ("g", pa.int64()), ("s", pa.string())])
    catalog = Catalog(place)
    catalog.create_database("db")
    schema = Schema(columns, primary_keys=keys, partition_keys=keys[:partitions], options=options)
    catalog.create_table("db.t", schema)
    return catalog.table("db.t")


def filled(table: Table, known: pa.Table, random: np.random.Generator) -> pa.Table:
    count = int(random.integers(1, len(known) + 1))
    rows = known.take(pa.array(random.choice(len(known), count, replace=False)))
    some = random.random(count) < 0.2
    rows = rows.append_column("v", pa.array(random.integers(0, 99, count), pa.int32(), mask=some))
    rows = rows.append_column("g", pa.array(random.integers(0, 5, count)))
    kinds = None
    if table.options.get("merge-engine", "deduplicate") == "deduplicate":
        kinds = pa.array(np.where(random.random(count) < 0.25, "-D", "+I"))
    table.write(rows.append_column("s", [[f"text {n}" for n in range(count)]]), row_kinds=kinds)
    return rows


@settings(max_examples=examples(12))
@given(
    kinds=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3),
    engine=st.sampled_from(sorted(ENGINES)),
    partitioned=st.booleans(),
    buckets=st.integers(1, 3),
    file_format=st.sampled_from(["parquet", "parquet", "parquet", "orc", "avro"]),
    bloom=st.booleans(),
    evolves=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_tables(
    kinds: list[str],
    engine: str,
    partitioned: bool,
    buckets: int,
    file_format: str,
    bloom: bool,
    evolves: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    partitions = int(partitioned and len(kinds) > 1 and kinds[0] not in {"bytes", "text"})
    options = {**ENGINES[engine], "bucket": str(buckets), "file.format": file_format}
    if bloom:
        indexed = ",".join(f"k{i}" for i, kind in enumerate(kinds) if kind not in {"decimal", "wide decimal", "flag"})
        options |= {"file-index.bloom-filter.columns": indexed} if indexed else {}
        options |= {f"file-index.bloom-filter.{name}.items": "50" for name in indexed.split(",") if name}
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 4)
        table = new_table(place, kinds, partitions, options)
        known = pool(kinds, random, 40, partitions)
        for number in range(int(random.integers(1, 5))):
            filled(table, known, random)
            if random.random() < 0.5:
                table.compact(full=bool(random.random() < 0.5))
            if evolves and number == 0:
                change = [SchemaChange.update_type("v", "BIGINT"), SchemaChange.add_column("extra", pa.int32())]
                catalog = Catalog(place)
                catalog.alter_table("db.t", change if engine != "aggregation" else change[1:])
                table = catalog.table("db.t")
        full = table.to_arrow()
        for _ in range(2):
            unknown = pool(kinds, random, 5, partitions)
            asked = pa.concat_tables([known, unknown]).take(pa.array(random.integers(0, len(known), 12)))
            is_answer(table.store, full, asked)
            is_answer(table.store, full, asked, ["s", "v"])
        is_answer(table.store, full, known)


KEYED = [case for case in cases() if case.story["schema"].get("primaryKeys")]


@pytest.mark.parametrize("case", one_in(6, KEYED), ids=lambda case: case.name)
def test_tables_of_java(case: Case, tmp_path: Path) -> None:
    """All keys that their newest version holds, and half of them."""
    store = case.unpack(tmp_path)
    full = read(store)
    keys = full.select(list(store.schema.primary_keys))
    is_answer(store, full, keys)
    is_answer(
        store, full, keys.slice(keys.num_rows // 3).take(pa.array(np.arange(0, keys.num_rows - keys.num_rows // 3, 2)))
    )
