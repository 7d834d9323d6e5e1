"""Reading some columns says of them what reading all says, whatever else decides about a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema

FIELDS = pa.schema(
    [pa.field("k", pa.int32(), nullable=False), *[(name, pa.int32()) for name in ("g", "a", "h1", "h2", "b", "c")]]
)
OPTIONS = {
    "bucket": "1",
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "a",
    "fields.h1,h2.sequence-group": "b",
    "fields.b.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "g",
}


@pytest.mark.parametrize("columns", [["k"], ["c"], ["b", "k"], ["a"], ["h2", "c"]])
def test_deletes_of_a_sequence_group_count_for_every_choice_of_columns(tmp_path: Path, columns: list[str]) -> None:
    catalog, random = Catalog(str(tmp_path)), np.random.default_rng(3)
    catalog.create_database("d")
    table = catalog.create_table("d.t", Schema(FIELDS, ["k"], [], OPTIONS))
    for _ in range(5):
        rows = [pa.array(random.integers(0, 20, 40), pa.int32())]
        rows += [pa.array(random.integers(0, 4, 40), pa.int32(), mask=random.random(40) < 0.3) for _ in range(6)]
        table.write(pa.table(rows, schema=FIELDS), row_kinds=pa.array(random.choice(["+I", "-D"], 40, p=[0.8, 0.2])))
    whole = table.to_arrow().sort_by("k").select(columns)
    if "k" in columns:
        assert table.to_arrow(columns=columns).sort_by("k") == whole
    else:
        order = [(name, "ascending") for name in columns]
        assert table.to_arrow(columns=columns).sort_by(order) == whole.sort_by(order)
    assert 0 < whole.num_rows < 20
