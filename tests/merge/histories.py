"""Histories of a small table: sorted inputs with colliding versions, and the check of their merge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key

import pyarrow as pa

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference import Row, compare_keys, merge_rows
from lsm_core.merge import Deduplicate, KeySpec, MergeCounters, RunInput, merge_streams
from lsm_core.types import parse

KEY_TYPES = {
    "bigint": (pa.int64(),),
    "string": (pa.string(),),
    "pair": (pa.string(), pa.int32()),
}


@dataclass(frozen=True)
class History:
    """Inputs in the order in which they are passed to the merge, with the merge options."""

    inputs: tuple[tuple[Row, ...], ...]
    key: str = "bigint"
    user_sequence: bool = False
    descending: bool = False
    ignore_delete: bool = False
    drop_delete: bool = False
    sequenced: bool = True

    @property
    def spec(self) -> KeySpec:
        names = tuple(f"k{i}" for i in range(len(KEY_TYPES[self.key])))
        return KeySpec(names, ("s",) if self.user_sequence else (), self.descending)


def arrow_schema(history: History) -> pa.Schema:
    keys = [pa.field(f"_KEY_k{i}", kind, nullable=False) for i, kind in enumerate(KEY_TYPES[history.key])]
    system = [
        pa.field("_SEQUENCE_NUMBER", pa.int64(), nullable=False),
        pa.field("_VALUE_KIND", pa.int8(), nullable=False),
    ]
    return pa.schema([*keys, *system, pa.field("s", pa.int32()), pa.field("v", pa.int64())])


def without_sequence(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name != "_SEQUENCE_NUMBER"])


def to_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    width = len(schema) - 4
    columns = [[row.key[i] for row in rows] for i in range(width)]
    columns += [[row.sequence for row in rows], [row.kind for row in rows]]
    columns += [
        [row.sequence_fields[0] if row.sequence_fields else None for row in rows],
        [row.values[0] for row in rows],
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches(rows: Sequence[Row], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        yield to_batch(rows[start : start + size], schema)


def table_schema(history: History) -> TableSchema:
    names = [f"k{i}" for i in range(len(KEY_TYPES[history.key]))]
    fields = tuple(DataField(i, name, parse("BIGINT NOT NULL")) for i, name in enumerate(names))
    return TableSchema(0, fields, len(fields), primary_keys=tuple(names))


def expected(history: History) -> list[Row]:
    options = {
        "ignore-delete": str(history.ignore_delete).lower(),
        "sequence.field.sort-order": "descending" if history.descending else "ascending",
    }
    rows = [row for value in history.inputs for row in value]
    return merge_rows(rows, table_schema(history), options, history.drop_delete)


def merged(history: History, size: int, counters: MergeCounters, batch_rows: int | None = None) -> list[pa.RecordBatch]:
    schema = arrow_schema(history)
    inputs = []
    for number, rows in enumerate(history.inputs):
        level, age = (rows[0].level, rows[0].age) if rows else (0, number)
        stream = batches(rows, schema, size)
        stream = stream if history.sequenced else map(without_sequence, stream)
        inputs.append(RunInput(stream, level, age, at_hand=(1, 5)[number % 2]))  # what is at hand changes no answer
    function = Deduplicate(history.spec, history.ignore_delete)
    return list(
        merge_streams(
            inputs,
            function,
            key_spec=history.spec,
            drop_delete=history.drop_delete,
            counters=counters,
            batch_rows=batch_rows,
        )
    )


def check(history: History, size: int, batch_rows: int | None = None) -> None:
    """Assert that windows of any size give the rows of the reference, and that every row is counted."""
    counters = MergeCounters()
    found = pa.Table.from_batches(merged(history, size, counters, batch_rows) or [empty_batch(history)])
    wanted = expected(history)
    assert found.column("v").to_pylist() == [row.values[0] for row in wanted]
    if history.sequenced:
        assert found.column("_SEQUENCE_NUMBER").to_pylist() == [row.sequence for row in wanted]
    assert found.column("_VALUE_KIND").to_pylist() == [row.kind for row in wanted]
    counters.check()
    assert counters.rows_in == sum(len(rows) for rows in history.inputs)
    assert counters.rows_out == len(wanted)


def empty_batch(history: History) -> pa.RecordBatch:
    return to_batch([], arrow_schema(history))


def by_age_alone(history: History) -> History:
    """Return the same rows without sequence numbers, whose order is then given by level, age and position."""
    order = sorted(
        ((-row.level, row.age, i, n) for n, value in enumerate(history.inputs) for i, row in enumerate(value))
    )
    rank = {(n, i): at for at, (_, _, i, n) in enumerate(order)}
    inputs = tuple(
        tuple(row._replace(sequence=rank[n, i]) for i, row in enumerate(value))
        for n, value in enumerate(history.inputs)
    )
    return replace(history, inputs=inputs, sequenced=False)


def random_history(seed: int) -> History:
    """Return a history with few keys, few sequence numbers and many ties; the inputs have a random order of age."""
    rng = random.Random(seed)
    key = rng.choice(sorted(KEY_TYPES))
    user_sequence = rng.random() < 0.4
    value = iter(range(10_000))
    inputs = []
    ages = list(range(rng.randint(1, 5)))
    rng.shuffle(ages)
    for age in ages:
        level = rng.choice([0, 0, 0, 1, 2])
        rows = [
            Row(
                random_key(rng, key),
                (rng.choice([None, 0, 1, 2]),) if user_sequence else (),
                rng.choice([0, 1, 2]),
                rng.choice([0, 0, 2, 3, 1]),
                (next(value),),
                level,
                age,
            )
            for _ in range(rng.choice([0, 1, 3, 8, 20]))
        ]
        inputs.append(tuple(in_key_order(rows)))
    flags = [rng.random() < p for p in (0.3, 0.3, 0.4)]
    return History(tuple(inputs), key, user_sequence, flags[0], flags[1], flags[2])


def random_key(rng: random.Random, kind: str) -> tuple[object, ...]:
    number = rng.randrange(6)
    if kind == "bigint":
        return (number - 3,)
    text = ["", "a", "a\x00", "a\x00b", "commonprefix-1", "commonprefix-2é"][number]
    return (text,) if kind == "string" else (text, rng.choice([-1, 0, 127]))


def in_key_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=cmp_to_key(lambda a, b: compare_keys(a.key, b.key)))
