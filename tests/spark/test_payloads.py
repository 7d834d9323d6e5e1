"""What travels from the driver to the tasks: functions by name, versions; no path of the driver's installation, no code of it, no secret."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from lsm_core import Catalog, Schema
from lsm_core.errors import SparkFailed
from lsm_core.spark import compact_table, delete_where, read_table, spark_tasks, verify_table, write_table
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_tasks import Shipped, Versions, translate_errors, typed_error
from lsm_core.spark.table_reader import require_workers
from tests.spark.tables import FIELDS, data_files, make_table, rows, same
from tests.support.s3_server import ENVIRONMENT, S3Server
from tests.support.spark import ROOT

pytestmark = pytest.mark.spark

PLACES = (str(ROOT), sys.prefix, sys.base_prefix + "/lib")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Everything that is pickled for the tasks of this session."""
    from pyspark.serializers import CloudPickleSerializer

    seen: list[bytes] = []
    original = CloudPickleSerializer.dumps

    def dumps(self: Any, obj: Any) -> bytes:
        data: bytes = original(self, obj)
        seen.append(data)
        return data

    monkeypatch.setattr(CloudPickleSerializer, "dumps", dumps)
    yield seen
    assert seen


def named(payloads: list[bytes]) -> set[str]:
    return {place for place in PLACES for data in payloads if place.encode() in data}


def test_tasks_get_no_path_of_the_drivers_installation(spark: Any, sent: list[bytes], tmp_path: Path) -> None:
    table = make_table(tmp_path, options={"bucket": "2"})
    frame = spark.createDataFrame(rows(list(range(60)))).repartition(2)
    write_table(frame, table)  # with a shuffle
    write_table(spark.createDataFrame(rows(list(range(30, 90)), "b")).coalesce(1), table)  # and without one
    assert read_table(spark, table).count() == 90  # merged
    assert read_table(spark, table, incremental=(1, 2)).count() == 60
    delete_where(spark, table, [("k", "<", 10)])
    report = compact_table(spark, table, full=True)
    assert verify_table(spark, table, report.base_snapshot, report.snapshot_id).ok
    assert same(table.to_arrow(), read_table(spark, table).toArrow())
    name = {"warehouse": str(tmp_path), "table": "db.t"}
    assert spark.read.format("dredge").options(**{**name, "table": "db.t$files"}).load().count() == 2
    assert len(sent) >= 6
    assert named(sent) == set()
    # The data source's halves are pickled by Spark's own processes, not by this one.
    from pyspark.serializers import CloudPickleSerializer

    source = TableSource(name)
    writer = source.writer(frame.schema, overwrite=False)
    for half in (TableSource, source, source.reader(read_table(spark, table).schema), writer):
        assert named([CloudPickleSerializer().dumps(half)]) == set()
    writer.abort([None])


def test_tasks_get_their_keys_from_their_own_environment_alone(
    spark: Any, s3: S3Server, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "only-the-environment-knows-7f3k"
    for name, value in {**ENVIRONMENT, "AWS_SECRET_ACCESS_KEY": secret}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    catalog = Catalog(f"{s3.bucket()}/house", s3.options)
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options={"bucket": "1"}))
    for _ in range(2):
        write_table(spark.range(0, 20, 1, 2).selectExpr("id AS k"), table)
    assert read_table(spark, table).count() == 20
    assert compact_table(spark, table, full=True).snapshot_id == 3
    assert s3.options["s3.endpoint"].encode() in b"".join(sent)  # the address is what they are told
    assert secret.encode() not in b"".join(sent)


def test_workers_of_other_versions_refuse_and_name_both(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = Versions.here(), Versions("0.0.9", "3.10", "1.0.0", "3.5.1")
    table = make_table(tmp_path)
    table.write(rows([1]))
    before = data_files(tmp_path)
    monkeypatch.setattr(spark_tasks.Versions, "here", lambda: other)
    with pytest.raises(SparkFailed) as raised:
        write_table(spark.createDataFrame(rows([1, 2])), table)
    differ = (
        f"{part} {getattr(other, part)} on the driver and {getattr(mine, part)} on the worker"
        for part in ("dredge", "python", "pyarrow", "pyspark")
    )
    assert str(raised.value) == f"Spark failed at comparing versions: {'; '.join(differ)}: give both sides the same"
    assert data_files(tmp_path) == before
    assert len(table.snapshots()) == 1
    with pytest.raises(SparkFailed, match=r"^Spark failed at comparing versions: dredge 0\.0\.9 on the driver"):
        require_workers(spark)
    # A data source's halves are unpacked by tasks.
    source = TableSource({"warehouse": str(tmp_path), "table": "db.t"})
    columns = from_arrow_schema(FIELDS, prefer_timestamp_ntz=True)
    halves = [source.reader(columns), source.writer(columns, overwrite=False), source.streamReader(columns)]
    packed = [pickle.dumps(item) for item in [*halves, source.streamWriter(columns, overwrite=False)]]
    halves[1].abort([None])
    monkeypatch.undo()
    for item in packed:
        with pytest.raises(SparkFailed, match=r"^Spark failed at comparing versions: dredge 0\.0\.9 on the driver"):
            pickle.loads(item)


def test_versions_that_may_meet_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Versions.here()
    newer = {name: f"{getattr(mine, name).partition('.')[0]}.999.9" for name in ("pyarrow", "pyspark")}
    replace(mine, **newer).require_here()
    assert list(Shipped(_twice, 2)(iter([1, 2]))) == [2, 4]  # type: ignore[arg-type]


def _twice(times: int, numbers: Any) -> Iterator[Any]:
    for number in numbers:
        yield times * number


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (
            (
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
                "driver: 3.11, PySpark cannot run with different minor versions."
            ),
            "Spark failed at comparing versions: python 3.11 on the driver and 3.12 on the worker: give both sides the same",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST",
            "Spark failed at writing: Python worker failed to connect back",
        ),
        (
            "Job aborted\n  File ...\nModuleNotFoundError: No module named 'lsm_core'\n\tat org.apache",
            (
                "Spark failed at writing: the Python of Spark's workers cannot use it: No module named 'lsm_core'; give them a Python that has "
                "dredge[spark] of the driver's version, or Dredge's wheel by --py-files"
            ),
        ),
        (
            "AttributeError: Can't get attribute 'Shipped' on <module 'lsm_core.spark.spark_tasks' from '/x'>\n",
            (
                "Spark failed at writing: the Python of Spark's workers cannot use it: Can't get attribute 'Shipped' on <module "
                "'lsm_core.spark.spark_tasks' from '/x'>; give them a Python that has dredge[spark] of the driver's version, or Dredge's wheel by "
                "--py-files"
            ),
        ),
    ],
)
def test_a_worker_that_cannot_even_load_the_function_is_one_line(trace: str, said: str) -> None:
    from pyspark.errors import PythonException

    assert str(typed_error(RuntimeError(trace), "writing")) == said
    with pytest.raises(SparkFailed, match=r"^Spark failed at"), translate_errors("writing"):
        raise PythonException(trace)
