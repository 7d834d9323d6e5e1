"""Java Paimon, with its own file system for S3, and Dredge take turns on a table in one bucket."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from tests.support.peers import PAIMON_S3, JavaPaimon, missing
from tests.support.s3_server import ENVIRONMENT, S3Server

pytestmark = [pytest.mark.paimon_java, pytest.mark.soak]

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("p", pa.string())])


def test_java_and_dredge_take_turns_on_a_table_in_a_bucket(s3: S3Server) -> None:
    jars = sorted(PAIMON_S3.glob("*.jar"))
    if not jars:
        missing("no paimon-s3 in .peers/paimon-s3; run `scripts/peers.py --stores`")
    house = f"{s3.bucket()}/house"
    table = Catalog(house, s3.options).create_table(
        "db.t",
        Schema(FIELDS, primary_keys=["k", "p"], partition_keys=["p"], options={"bucket": "1"}),
        create_database=True,
    )
    keys = {"s3.access-key": ENVIRONMENT["AWS_ACCESS_KEY_ID"], "s3.secret-key": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]}
    place, expected = {"warehouse": house, "table": "db.t"}, {}
    java = JavaPaimon(store_jars=jars)
    try:
        java.call("catalog_open", warehouse=house, options={**s3.options, **keys})
        for turn in range(4):
            rows = [{"k": key, "v": f"{turn}", "p": "a/b %ü #?"} for key in range(turn, turn + 5)]
            if turn % 2:
                java.call("write", rows=rows, **place)
            else:
                table.refresh().write(rows)
            if turn == 2:
                table.refresh().compact(full=True)
            expected |= {row["k"]: row["v"] for row in rows}
            assert {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()} == expected
            assert {row["k"]: row["v"] for row in java.call("read", **place)["rows"]} == expected
    finally:
        java.close()
