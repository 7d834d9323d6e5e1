"""Rows that are over are not there, by the judge and by the kernel alike."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference import Row
from lsm_core.maintenance.reference.merging import living
from lsm_core.merge.engines.expire_rows import RowExpiry
from lsm_core.types import parse, to_arrow

NOW = 1_700_000_000_999
OPTIONS = {"record-level.expire-time": "1 h", "record-level.time-field": "t"}


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"])
def test_the_edge_lies_at_the_second_after_the_lifetime(kind: str) -> None:
    unit = {"INT": 1, "BIGINT": 1, "TIMESTAMP(6)": 10**6}.get(kind, 10**3)
    schema = TableSchema(0, (DataField(0, "t", parse(kind)),), 0, primary_keys=("t",))
    edge = NOW // 1000 - 3600
    times = [None, *((edge + off) * unit for off in (-10, -1, 0, 1, 10))]
    if kind == "BIGINT":
        times += [(edge + off) * 1000 for off in (-1, 0)]
    left = living([Row((i,), (), i, 0, (t,)) for i, t in enumerate(times)], schema, OPTIONS, NOW)
    assert [row.key[0] for row in left] == [0, 3, 4, 5, *([7] if kind == "BIGINT" else [])]
    expiry = RowExpiry.of(schema, OPTIONS)
    assert expiry is not None
    gone = expiry.expired(pa.array(times, to_arrow(parse(kind))), NOW).tolist()
    assert [i for i, over in enumerate(gone) if not over] == [row.key[0] for row in left]


def test_without_the_option_every_row_lives() -> None:
    schema = TableSchema(0, (DataField(0, "t", parse("INT")),), 0, primary_keys=("t",))
    assert len(living([Row((0,), (), 0, 0, (0,))], schema, {}, NOW)) == 1
