"""Java lets a retract in that its merge engine does not take, if it is alone for its key in a flush; Dredge reads it and writes none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import RetractNotSupported
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
REFUSING = {
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "sequence group": {
        "merge-engine": "partial-update", "fields.g.sequence-group": "v", "fields.v.aggregate-function": "max",
    },
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"},
}  # fmt: skip


@pytest.mark.paimon_java
@pytest.mark.parametrize("options", one_in(2, REFUSING.values()), ids=REFUSING)
def test_a_retract_alone_passes_in_java_and_two_rows_of_its_key_fail(
    tmp_path: Path, java: Java, options: dict[str, str]
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = [{"name": name, "type": kind} for name, kind in (("k", "INT NOT NULL"), ("g", "INT"), ("v", "INT"))]
    settings = {"bucket": "1", "write-only": "true", **options}
    java("create", table="db.t", schema={"fields": fields, "primaryKeys": ["k"], "options": settings})

    def one(key: int, kind: str) -> dict[str, Any]:
        return {"_kind": kind, "k": key, "g": 1, "v": 1}

    java("write", table="db.t", rows=[one(1, "+I"), one(2, "-D"), one(3, "-U")])
    with pytest.raises(Exception, match=r"(?i)retract|can not accept") as caught:
        java("write", table="db.t", rows=[one(4, "+I"), one(4, "-D")])
    assert type(caught.value).__name__ == "PeerError"
    table = catalog.table("db.t")
    assert table.to_arrow().column("k").to_pylist() == [row["k"] for row in java("read", table="db.t")["rows"]]
    before = table.latest_snapshot()
    for kind in ("-D", "-U"):
        with pytest.raises(RetractNotSupported, match=r"key {'k': 4}"):
            table.write(pa.table({"k": [4], "g": [1], "v": [1]}), pa.array([kind]))
    assert table.latest_snapshot() == before
    table.compact(full=True)
    rows = java("read", table="db.t")["rows"]
    assert [row["k"] for row in rows] == [1] == table.to_arrow().column("k").to_pylist()
