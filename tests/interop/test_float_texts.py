"""Floating-point numbers as the Java at hand prints them: thousands of bit patterns cast to STRING, and the partitions it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.types.casts.java_floats import float_column, text_since_jdk19

Java = Callable[..., dict[str, Any]]
COUNT = 3000


def numbers(rng: np.random.Generator, kind: Any, bits: int, everyday: int) -> pa.Array:
    """Any bit patterns, short mantissas of the exponents where JDKs differ, and what people have in their tables."""
    word, mantissa = (np.uint64, 52) if bits == 64 else (np.uint32, 23)
    middle = 2 ** (bits - mantissa - 2) - 1
    anything = rng.integers(0, 2**bits, COUNT // 3, dtype=np.uint64)
    drawn, cut = rng.integers(0, 2**mantissa, COUNT // 3), rng.integers(0, mantissa + 1, COUNT // 3)
    short = (rng.integers(middle - 60, middle + 100, COUNT // 3) << mantissa) + (drawn >> cut << cut)
    found = np.concatenate([anything.astype(word).view(kind), short.astype(word).view(kind)])
    plain = np.round(rng.uniform(0, 10.0 ** rng.integers(1, everyday, COUNT - len(found))), 2).astype(kind)
    return pa.array(np.concatenate([found, plain]))


@pytest.fixture
def old(java: Java) -> bool:
    """Whether this Java prints as JDKs before 19 do."""
    return int(java("ping")["java"].partition(".")[0]) < 19


@pytest.mark.paimon_java
def test_thousands_of_numbers_are_cast_to_the_texts_of_java(tmp_path: Path, java: Java, old: bool) -> None:
    catalog, rng = Catalog(str(tmp_path)), np.random.default_rng(20)
    catalog.create_database("db")
    fields = [{"name": "k", "type": "INT"}, {"name": "f", "type": "FLOAT"}, {"name": "d", "type": "DOUBLE"}]
    java("create", schema={"fields": fields, "partitionKeys": [], "primaryKeys": [], "options": {"bucket": "-1"}})
    columns = [numbers(rng, np.float32, 32, 12), numbers(rng, np.float64, 64, 18)]
    table = catalog.table("db.t")
    table.write(pa.table([pa.array(range(COUNT), pa.int32()), *columns], schema=table.schema.arrow_schema))
    java("alter", changes=[{"change": "update_type", "name": name, "type": "STRING"} for name in ("f", "d")])
    theirs = sorted(java("read")["rows"], key=lambda row: int(row["k"]))
    assert len(theirs) == COUNT
    for name, column in zip(("f", "d"), columns, strict=True):
        single = pa.types.is_float32(column.type)
        newer = [] if old else [text_since_jdk19(value, single=single) for value in column.to_pylist()]
        assert (float_column(column).to_pylist() if old else newer) == [row[name] for row in theirs]
    ours = catalog.table("db.t").to_arrow().sort_by("k")
    assert ours["f"].to_pylist() == float_column(columns[0]).to_pylist()
    assert ours["d"].to_pylist() == float_column(columns[1]).to_pylist()


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_partitions_of_rare_numbers_are_found_by_both_engines(tmp_path: Path, java: Java, kind: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = [{"name": "p", "type": kind}, {"name": "v", "type": "INT"}]
    java("create", schema={"fields": fields, "partitionKeys": ["p"], "primaryKeys": [], "options": {"bucket": "-1"}})
    values = [2.0**60, 1.17549435e-38, 33554432.0, 1e10, 2.0**-149, 1.22818658e11, 1.5, 2.0**-20, 0.1]
    values += [2e23, 1e23, 5e-324, 2.26797932753915e17] if kind == "DOUBLE" else []
    java("write", rows=[{"p": value, "v": 1} for value in values], compact="none")
    named = {path.name for path in (tmp_path / "db.db" / "t").glob("p=*")}
    assert len(named) == len(values)
    table = catalog.table("db.t")
    assert table.to_arrow().num_rows == len(values)
    column = pa.array(values, pa.float32() if kind == "FLOAT" else pa.float64())
    table.write(pa.table([column, pa.array([2] * len(values), pa.int32())], schema=table.schema.arrow_schema))
    assert {path.name for path in (tmp_path / "db.db" / "t").glob("p=*")} == named
    assert len(java("read")["rows"]) == 2 * len(values)
