"""A retract can leave null in a NOT NULL column: Java reads it and can then never compact the bucket; Dredge compacts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
ENGINES = {
    "sequence group": {"merge-engine": "partial-update", "fields.g.sequence-group": "v"},
    "aggregate in a group": {
        "merge-engine": "partial-update", "fields.g.sequence-group": "v", "fields.v.aggregate-function": "last_non_null_value",
    },
    "aggregation": {"merge-engine": "aggregation", "fields.g.aggregate-function": "max", "fields.g.ignore-retract": "true"},
}  # fmt: skip
LEFT = [{"k": 1, "g": 2, "v": None}, {"k": 2, "g": 2, "v": None}, {"k": 3, "g": 1, "v": "c"}]


def rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(({n: row[n] for n in ("k", "g", "v")} for row in answer["rows"]), key=lambda row: row["k"])


@pytest.mark.paimon_java
@pytest.mark.parametrize("file_format", one_in(3, ["parquet", "orc", "avro"]))
@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_what_java_reads_and_cannot_compact_is_compacted_and_read_by_both(
    tmp_path: Path, java: Java, options: dict[str, str], file_format: str
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = [
        {"name": name, "type": kind} for name, kind in (("k", "INT NOT NULL"), ("g", "INT"), ("v", "STRING NOT NULL"))
    ]
    settings = {"bucket": "1", "file.format": file_format, **options}
    java("create", table="db.t", schema={"fields": fields, "primaryKeys": ["k"], "options": settings})
    given = [{"k": k, "g": 1, "v": v} for k, v in ((1, "a"), (2, "b"), (3, "c"))]
    java("write", rows=given, compact="none")
    java(
        "write",
        rows=[{"_kind": kind, **row, "g": 2} for kind, row in zip(("-D", "-U"), given, strict=False)],
        compact="none",
    )
    table = catalog.table("db.t")
    expected = rows(java("read"))
    assert table.to_arrow().sort_by("k").to_pylist() == expected
    assert [row["v"] for row in expected] == [None, None, "c"]
    with pytest.raises(Exception, match="expected not null but found null value"):
        java("compact")
    assert table.compact(full=True).snapshot_id is not None
    assert table.to_arrow().sort_by("k").to_pylist() == expected == rows(java("read"))
    assert table.health()[0].sorted_runs == 1
    table.write(pa.table({"k": [1, 2], "g": [3, 3], "v": ["aa", "bb"]}))
    java("compact")
    healed = rows(java("read"))
    assert [row["v"] for row in healed] == ["aa", "bb", "c"]
    assert table.to_arrow().sort_by("k").to_pylist() == healed
