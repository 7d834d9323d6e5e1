"""Random histories of random tables: runs of versions, merged by the engine and by the reference implementation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsm_core.errors import DredgeError
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_core.maintenance.reference import Row, key_order, merge_by_key
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.maintenance.reference.versions import sort_in_merge_order
from lsm_core.merge import MergeCounters, RunInput, merge_function, merge_streams, merge_unsorted
from lsm_core.types import to_arrow
from tests.merge.random_tables import RandomTable, random_table

Runs = tuple[tuple[Row, ...], ...]
BATCHES = (1, 2, 3, 7)


@dataclass(frozen=True)
class History:
    """Runs of a table, oldest first, each sorted by key; the rows of a run have the run's level and age."""

    table: RandomTable
    runs: Runs
    drop_delete: bool

    @property
    def schema(self) -> TableSchema:
        return self.table.schema

    @property
    def keys(self) -> set[Any]:
        return {key_order(row.key) for run in self.runs for row in run}

    def only(self, keys: set[Any]) -> History:
        """Return the history of only these keys."""
        runs = tuple(tuple(row for row in run if key_order(row.key) in keys) for run in self.runs)
        return History(self.table, runs, self.drop_delete)


def random_history(seed: int, keys: int = 24) -> History:
    """Return a history of about ``keys`` keys in 1 to 6 runs. In one of four, sequence numbers of runs overlap."""
    rng = random.Random(seed)
    table = random_table(rng)
    count = rng.randint(1, 6)
    overlap, repeats = rng.random() < 0.25, rng.random() < 0.3
    levels = sorted((rng.choice([0, 0, 0, 1, 2, 5]) for _ in range(count)), reverse=True)
    chosen = {tuple(table.pools[name](rng) for name in table.keys) for _ in range(keys)}
    runs = []
    for age in range(count):
        rows: list[Row] = []
        for key in sorted(chosen, key=key_order):
            versions = []
            for _ in range(rng.choice([0, 1, 2, 3] if repeats else [0, 1, 1])):
                sequence = rng.randint(0, 4) if overlap else 10 * age + rng.randint(0, 4)
                versions.append(_row(rng, table, key, sequence, levels[age], age))
            # keys may repeat within an input, but then in merge order, as in spilled chunks
            rows += sort_in_merge_order(versions, table.descending)
        runs.append(tuple(rows))
    return History(table, tuple(runs), rng.random() < 0.4)


def _row(rng: random.Random, table: RandomTable, key: tuple[Any, ...], sequence: int, level: int, age: int) -> Row:
    held = {name: table.value(rng, name) for name in table.names}
    held.update(zip(table.keys, key, strict=True))
    ordering = [name for name in table.options.get("sequence.field", "").split(",") if name]
    values = tuple(held[name] for name in table.names)
    return Row(key, tuple(held[name] for name in ordering), sequence, rng.choice(table.kinds), values, level, age)


def random_grouping(rng: random.Random, count: int) -> list[int]:
    """Return random sizes of groups of neighbouring runs, ``count`` runs in total."""
    sizes = []
    while count:
        sizes.append(rng.randint(1, count))
        count -= sizes[-1]
    return sizes


# -- by the reference --------------------------------------------------------------------------------------------------------


def expected(history: History, grouping: Sequence[int] = ()) -> dict[Any, Row | type[DredgeError] | None]:
    """Return the reference's result of each key, or the class of its error.

    With a ``grouping``, groups of neighbouring runs are merged first.
    """
    found: dict[Any, Row | type[DredgeError] | None] = {}
    for key in history.keys:
        mine = history.only({key})
        try:
            found[key] = _by_reference(mine, grouping).get(key)
        except DredgeError as error:
            found[key] = type(error)
    return found


def _by_reference(history: History, grouping: Sequence[int]) -> dict[Any, Row | None]:
    schema, options = history.schema, history.table.options
    runs = history.runs
    for level, age, group in _groups(history.runs, grouping):
        merged = merge_by_key((row for run in group for row in run), schema, options)
        kept = tuple(row._replace(level=level, age=age) for row in merged.values() if row is not None)
        runs = (*runs[len(group) :], kept)
    return merge_by_key((row for run in runs for row in run), schema, options, history.drop_delete)


def _groups(runs: Runs, grouping: Sequence[int]) -> Iterator[tuple[int, int, Runs]]:
    at = 0
    for size in grouping:
        yield 0, at, runs[at : at + size]
        at += size


# -- by the kernels ----------------------------------------------------------------------------------------------------------


def arrow_schema(schema: TableSchema) -> pa.Schema:
    system = [pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False), pa.field(VALUE_KIND, pa.int8(), nullable=False)]
    keys = [
        pa.field(KEY_PREFIX + name, to_arrow(schema.field(name).type), nullable=False) for name in schema.primary_keys
    ]
    values = [pa.field(f.name, to_arrow(f.type), f.type.nullable) for f in schema.fields]
    return pa.schema([*keys, *system, *values])


def to_batch(rows: Sequence[Row], schema: TableSchema) -> pa.RecordBatch:
    shape = arrow_schema(schema)
    columns: list[list[Any]] = [[row.key[i] for row in rows] for i in range(len(schema.primary_keys))]
    columns += [[row.sequence for row in rows], [row.kind for row in rows]]
    columns += [[row.values[i] for row in rows] for i in range(len(schema.fields))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, shape.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def to_rows(batch: pa.RecordBatch | pa.Table, schema: TableSchema) -> list[Row]:
    keys = zip(*(plain_values(batch.column(KEY_PREFIX + name)) for name in schema.primary_keys), strict=True)
    values = zip(*(plain_values(batch.column(name)) for name in schema.field_names), strict=True)
    system = (plain_values(batch.column(SEQUENCE_NUMBER)), plain_values(batch.column(VALUE_KIND)))
    return [
        Row(tuple(key), (), sequence, kind, tuple(row))
        for key, sequence, kind, row in zip(keys, *system, values, strict=True)
    ]


def merged(history: History, grouping: Sequence[int] = (), rows: int = 10_000) -> pa.Table:
    """Merge the runs by the engine, in batches of ``rows`` rows; with a ``grouping``, merge neighbouring runs first."""
    schema = history.schema
    shape = arrow_schema(schema)
    inputs = []
    batches = [to_batch(run, schema) for run in history.runs]
    tags = [(run[0].level, run[0].age) if run else (0, age) for age, run in enumerate(history.runs)]
    for level, age, group in _groups(history.runs, grouping):
        part = [_input(batches[age + i], *tags[age + i], rows) for i in range(len(group))]
        found = _merge(part, history, drop_delete=False)
        whole = pa.Table.from_batches(found, shape).combine_chunks()
        inputs.append(_input((whole.to_batches() or [to_batch((), schema)])[0], level, age, rows))
    if not grouping:
        inputs = [_input(batch, *tag, rows) for batch, tag in zip(batches, tags, strict=True)]
    return pa.Table.from_batches(_merge(inputs, history, drop_delete=history.drop_delete), shape)


def buffered(history: History, rows: Sequence[Row]) -> pa.Table:
    """Merge ``rows``, in order of arrival, as a write buffer does."""
    batch = to_batch(rows, history.schema)
    return merge_unsorted(pa.Table.from_batches([batch]), merge_function(history.schema, history.table.options))


def _input(batch: pa.RecordBatch, level: int, age: int, rows: int) -> RunInput:
    return RunInput(iter([batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]), level, age)


def _merge(inputs: list[RunInput], history: History, *, drop_delete: bool) -> list[pa.RecordBatch]:
    function = merge_function(history.schema, history.table.options)
    counters = MergeCounters()
    found = list(merge_streams(inputs, function, drop_delete=drop_delete, counters=counters))
    counters.check()
    return found


# -- both --------------------------------------------------------------------------------------------------------------------


def differences(history: History, wanted: dict[Any, Row | None], found: pa.Table) -> dict[Any, str]:
    """Return the keys whose result differs from the wanted one, with both results as text."""
    answers = ResultComparison(history.schema, history.table.options)
    there = {key_order(row.key): row for row in to_rows(found, history.schema)}
    wrong = {}
    for key in wanted.keys() | there.keys():
        mine, theirs = wanted.get(key), there.get(key)
        if mine is None or theirs is None:
            if mine is not theirs:
                wrong[key] = f"reference {mine}\nkernel    {theirs}"
        elif not answers.same(mine, theirs):
            wrong[key] = (
                f"reference {mine.sequence, mine.kind, mine.values}\nkernel    {theirs.sequence, theirs.kind, theirs.values}"
            )
    return wrong


def told(history: History, key: Any, text: str, how: str) -> str:
    """Return a readable failure: the table, the versions of one key, and the text with both results."""
    columns = ", ".join(f"{name} {history.table.types[name]}" for name in history.table.names)
    versions = [
        f"  run {i} (level {row.level}): seq {row.sequence} kind {row.kind} {row.values}"
        for i, run in enumerate(history.runs)
        for row in run
        if key_order(row.key) == key
    ]
    return "\n".join([how, columns, str(history.table.options), *versions, text])
