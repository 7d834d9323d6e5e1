"""What is refused at the door is what no merge takes: random tables and rows, judged by the reference, in both directions."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from lsm_core.errors import ArithmeticOverflow, DredgeError, RetractNotSupported
from lsm_core.maintenance.reference import Row, merge_by_key
from lsm_core.merge import Refusals, merge_function
from tests.merge.random_histories import buffered, random_history, to_batch
from tests.merge.random_tables import JAVA_POOLS, RandomTable, random_table

TABLES = 400
RETRACTS = (1, 3)


def decided(table: RandomTable, row: Row) -> bool:
    """Whether the row is refused."""
    rules = Refusals.of(merge_function(table.schema, table.options, "t"), table.schema, "t")
    rows = pa.Table.from_batches([to_batch([row], table.schema)]).select(table.names)
    try:
        rules.require_mergeable(rows, pa.array([row.kind], pa.int8()))
    except RetractNotSupported:
        return True
    return False


def drawn(rng: random.Random, table: RandomTable, key: tuple[object, ...], kind: int, number: int) -> Row:
    held = {name: table.value(rng, name) for name in table.names}
    return shaped(table, {**held, **dict(zip(table.keys, key, strict=True))}, key, kind, number)


def shaped(table: RandomTable, held: dict[str, object], key: tuple[object, ...], kind: int, number: int) -> Row:
    ordering = [name for name in table.options.get("sequence.field", "").split(",") if name]
    values = tuple(held[name] for name in table.names)
    return Row(key, tuple(held[name] for name in ordering), number, kind, values)


def raised(table: RandomTable, rows: list[Row]) -> type[DredgeError] | None:
    try:
        merge_by_key(rows, table.schema, table.options)
    except DredgeError as error:
        return type(error)
    return None


def test_refused_rows_fail_with_every_partner_and_others_with_none_at_all() -> None:
    result: Counter[tuple[str, bool]] = Counter()
    for seed in range(TABLES):
        rng = random.Random(seed)
        table = random_table(rng)
        if table.options.get("ignore-delete") == "true":
            continue
        key = tuple(table.pools[name](rng) for name in table.keys)
        for kind in RETRACTS:
            row = drawn(rng, table, key, kind, 1)
            refused = decided(table, row)
            result[table.options["merge-engine"], refused] += 1
            where = f"seed {seed}: {table.options} {table.types} {row}"
            empty = {**dict.fromkeys(table.names), **dict(zip(table.keys, key, strict=True))}
            error = raised(table, [shaped(table, empty, key, 0, 0), row])
            if refused and error is not ArithmeticOverflow:  # an older column's
                assert error is RetractNotSupported, where
            if not refused:
                assert error is not RetractNotSupported, where
            for number in (0, 2) if refused else ():
                partner = drawn(rng, table, key, rng.choice((0, 2)), number)
                assert raised(table, [row, partner]), where  # by now and then for a value of the partner's
    assert {engine for engine, refused in result if refused} == {"first-row", "partial-update", "aggregation"}
    assert min(result.values()) > 10, result


@pytest.mark.parametrize("seed", range(20))
def test_tables_whose_histories_java_shares_are_given_nothing_that_is_refused(seed: int) -> None:
    for number in range(20):
        rng = random.Random(1000 * seed + number)
        table = random_table(rng, JAVA_POOLS)
        if table.options.get("ignore-delete") == "true":
            continue
        key = tuple(table.pools[name](rng) for name in table.keys)
        for kind in set(table.kinds) & set(RETRACTS):
            assert not decided(table, drawn(rng, table, key, kind, 1)), table.options


def test_the_kernels_refuse_what_the_rules_say() -> None:
    """As above for the kernels, over whole buffers: they raise if and only if a key with several rows has a refused one."""
    both = Counter[bool]()
    for seed in range(300):
        history = random_history(seed, keys=6)
        table = history.table
        if table.options.get("ignore-delete") == "true" or table.options["merge-engine"] == "partial-update":
            continue  # in a sequence group rows that are not refused may be late
        rows = [row for run in history.runs for row in run]
        versions = Counter(row.key for row in rows)
        hit = any(row.retracts and versions[row.key] > 1 and decided(table, row) for row in rows)
        try:
            buffered(history, rows)
            failed = False
        except RetractNotSupported:
            failed = True
        except DredgeError:
            continue
        # a -D that removes the row hides what came before it from the kernels
        if not hit or table.options.get("aggregation.remove-record-on-delete") != "true":
            assert failed == hit, f"seed {seed}: {table.options}"
        both[hit] += 1
    assert min(both[True], both[False]) > 5, both
