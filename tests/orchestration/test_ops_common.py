"""Ops over all tables: an error of any type is the line of its table."""

from __future__ import annotations

import dagster as dg
import pytest

from dredge.orchestration.ops.common import process_tables


@pytest.mark.parametrize(
    "error", [OverflowError("inf"), RecursionError("deep"), KeyError("k"), MemoryError(), ValueError("v")]
)
def test_an_error_of_any_type_stops_no_other_table(error: Exception) -> None:
    visited: list[str] = []

    def act(name: str) -> None:
        visited.append(name)
        if name == "db.a":
            raise error

    with pytest.raises(dg.Failure, match=f"db.a: {type(error).__name__}"):
        process_tables(dg.build_op_context(), {"db.a": "db.a", "db.b": "db.b"}, act)
    assert visited == ["db.a", "db.b"]
