"""One Spark Connect server shared by short processes: loopback, a secret, reuse, and every call of Dredge through it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm_core.errors import PortInUse, SparkFailed
from lsm_core.spark import ConnectServer, await_server, running_server, spark_session, start_server, stop_server
from tests.spark.bad_inputs import SAID
from tests.spark.random_lives import STEPS
from tests.support.spark import INTERPRETED, JAVA_OPTIONS, run_script

pytestmark = pytest.mark.spark
LIVES = [3001]
"""Seeds of the random tables that a client lives with their twins."""

CLIENT = """
import json, sys
from pathlib import Path
import pyarrow as pa
from lsm_core import Catalog, Schema
from lsm_core.spark import compact_table, read_table, spark_session, spark_write, stop_session, verify_table, write_table
from tests.support.spark import kill_when

root, trace = Path(sys.argv[1]), Path(sys.argv[2])
spark = spark_session()
catalog = Catalog(str(root))
catalog.create_database("db", ignore_if_exists=True)
fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("x", pa.float64())])
catalog.create_table("db.t", Schema(fields=fields, primary_keys=["k"], partition_keys=[], options={"bucket": "3"}, comment=None))
table = catalog.table("db.t")
write_table(spark.range(0, 500, 1, 2).selectExpr("id k", "concat('a', id) v", "id / 2 x"), table)
killer = kill_when(trace, lambda line: line["event"] == "begin" and "bucket-1/" in line["path"])
write_table(spark.range(100, 300, 1, 2).selectExpr("id k", "concat('b', id) v", "double(id) x"), table)
killer.join(30)
report = compact_table(spark, table, full=True)
checked = verify_table(spark, table, report.base_snapshot, report.snapshot_id)
view = spark.read.format("dredge").option("warehouse", str(root)).option("table", "db.t").option("columns", "v,k").load()
many = catalog.create_table("db.many", Schema(fields=fields, primary_keys=["k"], partition_keys=[], options={"bucket": "40"}, comment=None))
told = spark.range(0, 400, 1, 2).selectExpr("id k", "'c' v", "double(id) x")
slots = spark_write._slots(told, many.store, spark_write._bytes_below(told.mapInArrow(lambda batches: batches, told.schema)))
# Spark's own default: classes for each plan.
spark.conf.set("spark.sql.codegen.wholeStage", "true")
spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
found = read_table(spark, table).toArrow().sort_by("k")
answer = {
    "killed": len(killer.killed),
    "rows": found.num_rows,
    "columns": view.columns,
    "new": view.where("v like 'b%'").count(),
    "ok": checked.ok,
    "level": report.verification.level,
    "tasks": slots,
    "same": found.equals(table.to_arrow().sort_by("k").cast(found.schema)),
}
print("ANSWER:" + json.dumps(answer))
stop_session(spark)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConnectServer, Path]]:
    """A server in a folder whose name has a space; its workers are traced."""
    folder = tmp_path_factory.mktemp("connect server")
    trace = folder / "trace.jsonl"
    os.environ["DREDGE_TRACE"] = str(trace)
    try:
        started = start_server(folder, conf={"spark.driver.extraJavaOptions": JAVA_OPTIONS, **INTERPRETED})
    finally:
        del os.environ["DREDGE_TRACE"]
    yield started, trace
    assert stop_server(folder)
    assert running_server(folder) is None


def test_every_call_works_through_connect_and_a_killed_worker_is_retried(
    server: tuple[ConnectServer, Path], tmp_path: Path
) -> None:
    done = run_script(CLIENT, str(tmp_path), str(server[1]), env=server[0].environment(one_session=True))
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER:")]
    assert lines, done.stderr[-3000:]
    assert json.loads(lines[0][7:]) == {
        "killed": 1,
        "rows": 500,
        "new": 200,
        "columns": ["v", "k"],
        "ok": True,
        "level": "V2",
        "tasks": 8,
        "same": True,
    }


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_what_is_wrong_is_said_through_connect_and_nothing_comes_of_it(
    server: tuple[ConnectServer, Path], tmp_path: Path
) -> None:
    code = """
import json, sys
from pathlib import Path
from lsm_core.spark import spark_session, stop_session
from tests.spark.bad_inputs import refused

spark = spark_session()
print("ANSWER:" + json.dumps(refused(spark, Path(sys.argv[1]))))
stop_session(spark)
"""
    done = run_script(code, str(tmp_path), env=server[0].environment(), timeout=500)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER:")]
    assert lines, done.stderr[-3000:]
    message = json.loads(lines[0][7:])
    assert message.pop("left") == ""
    assert [(name, text) for name, text in message.items() if not re.search(SAID[name], text, re.DOTALL)] == []
    assert set(message) == set(SAID)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_door_works_through_connect_as_on_a_classic_session(
    server: tuple[ConnectServer, Path], tmp_path: Path
) -> None:
    code = f"import sys; from pathlib import Path; from tests.spark.connect_client import main; main(Path(sys.argv[1]), {LIVES})"
    done = run_script(code, str(tmp_path), env=server[0].environment(), timeout=560)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER:")]
    assert lines, done.stderr[-6000:]
    assert json.loads(lines[0][7:]) == {
        "streams": [True] * 3,
        "reads": [2, ["C"], 1, 1],
        "procedures": ["tag before of db.filtered names snapshot 2", 1, "TableNotFound", [[2, "two"], [4, "four"]]],
        "queries": [[0, [{"k": 2, "v": None}, {"k": 3, "v": "C"}]], [1, 1]],
        "lives": [STEPS] * len(LIVES),
    }


@pytest.mark.soak
def test_clients_may_share_a_session_which_outlives_each_of_them(server: tuple[ConnectServer, Path]) -> None:
    code = """
import os, sys
from lsm_core.spark import spark_session
spark = spark_session()
if sys.argv[1] == "first":
    spark.range(7).createOrReplaceTempView("seven")
print("ANSWER:", spark.catalog.tableExists("seven"), os.environ["DREDGE_SPARK_REMOTE"].count("session_id"))
"""
    shared, alone = server[0].environment(one_session=True), server[0].environment()
    records = [
        run_script(code, who, env=env).stdout for who, env in (("first", shared), ("next", shared), ("next", alone))
    ]
    assert [text.strip() for text in records] == ["ANSWER: True 1", "ANSWER: True 1", "ANSWER: False 0"]
    assert server[0].environment(one_session=True) != shared


def test_a_running_server_is_reused_and_its_secret_stays_out_of_sight(server: tuple[ConnectServer, Path]) -> None:
    running = server[0]
    assert start_server(running.folder) == running
    assert running_server(running.folder) == running
    assert running.token not in running.url
    assert (Path(running.folder) / "spark-connect.json").stat().st_mode & 0o077 == 0
    command = Path(f"/proc/{running.pid}/cmdline").read_bytes()
    assert running.token.encode() not in command
    assert b"spark.connect.grpc.binding.address=127.0.0.1" in command


def test_a_second_server_on_another_port_of_the_same_folder_is_refused(server: tuple[ConnectServer, Path]) -> None:
    with pytest.raises(SparkFailed, match=f"already runs on port {server[0].port}"):
        start_server(server[0].folder, port=server[0].port + 1)


def test_a_client_without_the_secret_gets_one_clear_line(server: tuple[ConnectServer, Path]) -> None:
    code = """
from lsm_core.errors import SparkFailed
from lsm_core.spark import spark_session
try:
    spark_session()
except SparkFailed as error:
    print("REFUSED:", error)
"""
    done = run_script(code, env={**server[0].environment(), "SPARK_CONNECT_AUTHENTICATE_TOKEN": "guess"})
    assert done.stdout.startswith("REFUSED: Spark failed at connecting to sc://localhost"), done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 1


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SparkFailed, match=f"sc://localhost:{port}: no Spark Connect server answers there"):
        spark_session(f"sc://localhost:{port}")


def test_a_taken_port_is_one_clear_error_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            start_server(tmp_path / "taken", port=port)
    assert not (tmp_path / "taken").exists()


def test_a_server_that_dies_while_it_is_awaited_is_said_with_its_reason(tmp_path: Path) -> None:
    begun = start_server(tmp_path / "s", conf={"spark.no such": "x y"}, master="no-master[1]", wait=False)
    assert begun.port > 0 and begun.token
    with pytest.raises(SparkFailed, match="it ended with code"):
        await_server(begun)
    assert running_server(tmp_path / "s") is None
    assert not (tmp_path / "s" / "spark-connect.json").exists()


def test_nothing_runs_where_nothing_was_started(tmp_path: Path) -> None:
    assert running_server(tmp_path) is None
    assert stop_server(tmp_path) is False
    (tmp_path / "spark-connect.json").write_text('{"pid": "no number"}')
    assert running_server(tmp_path) is None
