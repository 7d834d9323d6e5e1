"""The deep check on Spark, and page checksums in Spark's own Parquet reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core.maintenance import CheckLimits, run_check
from lsm_core.spark import deep_read
from lsm_core.spark.spark_read import parquet
from tests.spark.tables import live_paths, make_table, rows

pytestmark = pytest.mark.spark


def test_tasks_read_every_page_and_spark_verifies_checksums_too(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(2):
        table.write(rows(list(range(number * 50, number * 50 + 150)), "c" * 2_000))
    limits = CheckLimits(deep=deep_read(spark))
    files = live_paths(table)
    sound = run_check(table.store, "pages_readable", limits)
    assert (sound.outcome, sound.numbers["files read"]) == ("passed", len(files))
    data = bytearray(files[0].read_bytes())
    data[60] ^= 1
    files[0].write_bytes(data)
    broken = run_check(table.store, "pages_readable", limits)
    assert broken.outcome == "failed"
    assert len(broken.problems) == 1 and str(files[0]) in broken.problems[0]
    names = spark.read.parquet(str(files[1])).columns
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in spark.read.parquet(str(files[1])).dtypes)
    assert len(names) > 1
    with pytest.raises(Exception, match=r"(?i)crc|checksum|corrupt"):
        parquet(spark, [str(files[0])], ddl).toArrow()
