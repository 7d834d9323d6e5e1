"""A Spark Connect server whose Python has Dredge's dependencies alone gets Dredge as an artifact of its client."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm_core.processes import free_port
from lsm_core.spark import find_java
from lsm_core.spark.session import REMOTE_VARIABLE, TOKEN_VARIABLE
from tests.cluster.test_spark_submit import CONF, python, wheel  # noqa: F401  (fixtures)
from tests.support.spark import run_script

pytestmark = [pytest.mark.spark, pytest.mark.soak]

CLIENT = """
import shutil, sys
import pyarrow as pa
from lsm_core import Catalog, Schema
from lsm_core.errors import SparkFailed
from lsm_core.spark import compact_table, read_table, register, spark_session, write_table

wheel, root = sys.argv[1:]
spark = spark_session()
try:
    register(spark)
except SparkFailed as error:
    print("REFUSED:", error)
spark.addArtifacts(shutil.copy(wheel, f"{root}/dredge.zip"), pyfile=True)
register(spark)
catalog = Catalog(f"{root}/house")
catalog.create_database("db")
fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options={"bucket": "2"}))
write_table(spark.range(0, 400).selectExpr("id k", "'a' v"), table)
place = {"warehouse": f"{root}/house", "table": "db.t"}
spark.range(200, 600).selectExpr("id k", "'b' v").write.format("dredge").options(**place).mode("append").save()
counts = spark.read.format("dredge").options(**place).load().count(), read_table(spark, table).count()
print("ANSWER:", *counts, compact_table(spark, table, full=True).commits)
"""


@pytest.fixture
def remote(python: Path, tmp_path: Path) -> Iterator[dict[str, str]]:  # noqa: F811
    """What a client needs in its environment."""
    import pyspark

    port, token = free_port(), secrets.token_urlsafe(16)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("DREDGE_", "PYTHON"))}
    kept |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": find_java().home}
    place = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in {**CONF, **place}.items():
        command += ["--conf", f"{key}={value}"]
    server = subprocess.Popen(
        [*command, "spark-internal"], cwd=tmp_path, env={**kept, TOKEN_VARIABLE: token}, start_new_session=True
    )
    try:
        until = time.monotonic() + 240
        while time.monotonic() < until and server.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield {REMOTE_VARIABLE: f"sc://localhost:{port}", TOKEN_VARIABLE: token}
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.timeout(900)
def test_a_server_without_dredge_gets_the_wheel_from_its_client(
    remote: dict[str, str],
    wheel: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    done = run_script(CLIENT, str(wheel), str(tmp_path), env=remote, timeout=600)
    refused, *lines = done.stdout.splitlines()
    assert "No module named 'lsm_core'" in refused, done.stderr[-3000:]
    assert lines == ["ANSWER: 600 600 1"], done.stderr[-3000:]
