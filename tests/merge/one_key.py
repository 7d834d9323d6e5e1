"""Versions of one key, merged by the engine and by the reference implementation."""

from __future__ import annotations

from typing import Any

from lsm_core.maintenance.reference import Row
from tests.merge.random_histories import History, differences, expected, merged, to_rows
from tests.merge.random_tables import RandomTable

INSERT, BEFORE, AFTER, DELETE = range(4)


def history(options: dict[str, str], kinds: dict[str, str], versions: list[tuple[Any, ...]]) -> History:
    """Return the history of one key; each version has the row kind and the values of the columns."""
    table = RandomTable(options, keys=["k"])
    table.column("k", "INT NOT NULL", lambda _: 1)
    for name, kind in kinds.items():
        table.column(name, kind)
    runs = tuple((Row((1,), (), n, kind, (1, *values), 0, n),) for n, (kind, *values) in enumerate(versions))
    return History(table, runs, drop_delete=False)


def answer(options: dict[str, str], kinds: dict[str, str], versions: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the values of the engine's merged row; assert that the reference gives the same values."""
    result = history(options, kinds, versions)
    found = merged(result)
    wanted = expected(result)
    assert not differences(result, {key: row for key, row in wanted.items() if not isinstance(row, type)}, found)
    return to_rows(found, result.schema)[0].values[1:]
