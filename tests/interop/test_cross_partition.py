"""Keys that move between partitions: a table that Dredge and Java write in turn has the rows of one that Java writes alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog

Java = Callable[..., dict[str, Any]]
STEPS = 5
FIELDS = [
    {"name": "p", "type": "STRING NOT NULL"},
    {"name": "q", "type": "INT NOT NULL"},
    {"name": "k", "type": "BIGINT NOT NULL"},
    {"name": "v", "type": "STRING"},
]


@pytest.mark.paimon_java
@pytest.mark.parametrize("keys", [["k"], ["q", "k"]], ids=["apart", "in part"])
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_rows_go_where_java_puts_them(tmp_path: Path, java: Java, engine: str, keys: list[str]) -> None:
    random = Random(f"{engine} {keys}")
    partitions = ["p"] if keys == ["k"] else ["p", "q"]
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    schema = {"fields": FIELDS, "primaryKeys": keys, "partitionKeys": partitions, "options": options}
    for name in ("db.both", "db.java"):
        java("create", table=name, schema=schema)
    catalog = Catalog(str(tmp_path))
    for step in range(STEPS):
        rows = [
            {"_kind": random.choice(["+I", "+U", "-D"] if engine == "deduplicate" else ["+I"])}
            | {
                "p": random.choice("abc"),
                "q": random.choice([1, 2]),
                "k": random.randrange(25),
                "v": f"{step}-{number}",
            }
            for number in range(20)
        ]
        compact = "minor" if engine == "first-row" else "none"
        java("write", table="db.java", rows=rows, compact=compact)
        table = catalog.table("db.both")
        if step % 2:
            java("write", table="db.both", rows=rows, compact=compact)
        else:
            kinds = pa.array([row["_kind"] for row in rows])
            table.write(pa.Table.from_pylist(rows, schema=table.schema.arrow_schema), kinds)
        if engine == "first-row" or step == 3:
            table.compact(full=step != 0)
        alone, both = (sorted(map(_values, java("read", table=name)["rows"])) for name in ("db.java", "db.both"))
        assert sorted(map(_values, table.to_arrow().to_pylist())) == both == alone


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[str(field["name"])] for field in FIELDS)
