"""Modes and `partitionBy` that Spark does not hand on to formats of Python reach this one all the same; other formats are left as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import InvalidOption, TableExists, UnsupportedFeature
from lsm_core.spark import register, spark_session
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_columns import spark_arrow_schema
from lsm_core.spark.table_writer import NoWriter
from lsm_core.spark.writer_modes import partition_columns, save_mode
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
FIELDS = pa.schema([pa.field("day", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)])


def test_modes_and_partition_by_of_a_writer_are_obeyed(spark: Any, tmp_path: Path) -> None:
    register(spark)
    table = make_table(
        tmp_path, fields=FIELDS, primary_keys=["day", "k"], partition_keys=["day"], options={"bucket": "1"}
    )
    frame = spark.createDataFrame([("mon", 1), ("tue", 2)], "day STRING, k BIGINT")

    def writer(name: str = "db.t") -> Any:
        return frame.write.format("dredge").options(warehouse=str(tmp_path), table=name)

    with pytest.raises(
        Exception, match=r"TableExists: table db\.t is there, and the mode is errorifexists, which is Spark's default"
    ):
        writer().save()
    writer().mode("ignore").save()
    assert table.latest_snapshot() is None
    writer().partitionBy(["DAY"]).mode("append").save()
    assert table.to_arrow().num_rows == 2
    with pytest.raises(
        Exception, match=r"'partitionBy' of table db\.t cannot be 'k'; accepted: the table's partition columns: day"
    ):
        writer().partitionBy("k").mode("append").save()
    writer("db.new").option("primary-key", "day,k").option("bucket", "1").partitionBy("day").save()
    made = Catalog(str(tmp_path)).table("db.new")
    assert (made.schema.primary_keys, made.schema.partition_keys) == (("day", "k"), ("day",))
    assert made.to_arrow().num_rows == 2
    with pytest.raises(UnsupportedFeature, match="tables of Spark's own catalog"):
        writer().saveAsTable("somewhere")
    assert (len(table.snapshots()), len(made.snapshots())) == (1, 1)


def test_other_formats_keep_their_modes(spark: Any, tmp_path: Path) -> None:
    register(spark)
    frame, place = spark.sql("SELECT 1 a, 2 b"), str(tmp_path / "rows")
    frame.write.format("parquet").partitionBy("a").save(place)
    assert (tmp_path / "rows" / "a=1").is_dir()
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        frame.write.save(place, format="parquet")
    frame.write.mode("ignore").save(place, format="parquet")
    assert spark.read.parquet(place).count() == 1


def _writer(tmp_path: Path, *, overwrite: bool = False, **options: str) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    table = make_table(tmp_path, fields=FIELDS, primary_keys=["k"])
    given = from_arrow_schema(spark_arrow_schema(table.schema.fields, table.name))
    chosen = {
        "warehouse": str(tmp_path),
        "table": "db.t",
        **{key.replace("_", "-"): text for key, text in options.items()},
    }
    return TableSource(chosen).writer(given, overwrite)


def test_the_options_may_be_given_by_themselves(tmp_path: Path) -> None:
    assert isinstance(_writer(tmp_path / "a", save_mode="ignore"), NoWriter)
    with pytest.raises(TableExists, match=r"mode\('append'\)"):
        _writer(tmp_path / "b", save_mode="errorifexists")
    with pytest.raises(
        InvalidOption,
        match=r"'save-mode' of table db\.t cannot be 'ignore'; accepted: mode\('append'\) of Spark beside it",
    ):
        _writer(tmp_path / "c", overwrite=True, save_mode="ignore")
    with pytest.raises(
        InvalidOption,
        match=r"'partitionBy' of table db\.t cannot be 'k'; accepted: no value, because the table has no partitions",
    ):
        _writer(tmp_path / "d", partition_by="k")
    with pytest.raises(InvalidOption, match="'bucket' cannot be '3'"):
        _writer(tmp_path / "e", bucket="3")
    with pytest.raises(
        InvalidOption, match="'save-mode' cannot be 'perhaps'; accepted: append, overwrite, ignore, errorifexists"
    ):
        save_mode({"save-mode": "perhaps"})
    assert (
        partition_columns({"partition-by": "a, b"}) == partition_columns({"partition-by": '["a", "b"]'}) == ["a", "b"]
    )


def test_a_session_of_spark_session_has_the_modes_without_register(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[tuple[Any, str]] = []
    monkeypatch.setattr("lsm_core.spark.writer_modes.hand_on_modes", lambda *given: handed.append(given))
    session = spark_session()
    assert handed == [(session, "dredge")]
