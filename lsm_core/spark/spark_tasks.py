"""What every Spark job of Dredge shares: coarse Python tasks, and errors that keep their type on the way back; no table data passes the driver."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core import errors
from lsm_core.errors import CorruptFile, DredgeError, SparkFailed, UnsupportedFeature
from lsm_core.metadata.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# -- errors between processes: a typed error of a worker is the same typed error on the driver -------------------------


_MARK: Final = re.compile(r"DREDGE-ERROR\[([A-Za-z0-9+/=]+)\]")
_MISSING_PATH: Final = re.compile(r"PATH_NOT_FOUND\] Path does not exist: (?:file:)?(\S.*?)\. SQLSTATE")
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (?:file:/{0,2}(?=/))?(\S.*?)\.\s+SQLSTATE")
_TELLING: Final = re.compile(
    r"(Python worker exited[^.\n]*|Connection refused|OutOfMemoryError[^\n]*|No space left on device)"
)

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class WorkerError(RuntimeError):
    """What Spark sees of a typed error: its text, and the error itself in a form the driver can rebuild."""


def encode(error: BaseException) -> bytes:
    """Return an error as JSON: class name and constructor arguments (no pickle); unknown classes keep their text."""
    if isinstance(error, DredgeError) and hasattr(errors, type(error).__name__):
        _, (_, args, kwargs) = error.__reduce__()
        value: dict[str, Any] = {"type": type(error).__name__, "args": list(args), "kwargs": kwargs}
    else:
        frames = traceback.extract_tb(error.__traceback__)  # it stays in the worker
        place = f" (at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
        value = {"type": "", "args": [f"{type(error).__name__}: {error}{place}"], "kwargs": {}}
    return json.dumps(value, default=repr).encode()


def decode(data: bytes, what: str) -> DredgeError:
    """Rebuild the error that ``encode`` wrote; errors that were not Dredge's own become SparkFailed(``what``)."""
    value = json.loads(data)
    kind = getattr(errors, value["type"], None) if value["type"] else None
    if isinstance(kind, type) and issubclass(kind, DredgeError):
        return kind(*value["args"], **value["kwargs"])
    return SparkFailed(what, str(value["args"][0]))


def shipped(function: BatchFunction) -> BatchFunction:
    """Wrap a mapInArrow function so that its typed errors survive Spark's own wrapping."""

    def guarded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except DredgeError as error:
            raise WorkerError(marked(error)) from error

    return guarded


def marked(error: DredgeError) -> str:
    """Return the text a worker raises: the error's own, and its encoded form."""
    return f"{error} DREDGE-ERROR[{base64.b64encode(encode(error)).decode()}]"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what Spark raises inside into the worker's own typed error, or into SparkFailed(``what``) with one clear line."""
    try:
        yield
    except DredgeError:
        raise
    except Exception as error:
        modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
        if not modules & {"pyspark", "py4j", "grpc"} and not isinstance(error, (ConnectionError, EOFError)):
            raise  # none of Spark's
        raise typed(error, what) from error


def typed(error: BaseException, what: str) -> DredgeError:
    """Return the typed error inside an exception of Spark."""
    text = str(error)
    found = _MARK.search(text)
    if found is not None:
        return decode(base64.b64decode(found.group(1)), what)
    missing = _MISSING_PATH.search(text)
    if missing is not None:
        return CorruptFile(missing.group(1), "the file is missing")
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return CorruptFile(unreadable.group(1), "it cannot be read as Parquet")
    telling = _TELLING.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return SparkFailed(what, telling.group(1) if telling else (lines[0] if lines else type(error).__name__))


# -- the workers' Python -------------------------------------------------------------------------------------------------


def use_this_python(session: SparkSession) -> bool:
    """Have the workers of a local session run this Python and find this `lsm_core`; whether they do.

    Plain PySpark starts the `python3` of the PATH, which has no Dredge where an environment is not activated. Left alone are sessions
    for which PYSPARK_PYTHON was set, clusters, and Connect, whose server decides.
    """
    python = _python_of(session)
    if python is not None and "PYSPARK_PYTHON" not in os.environ and session.sparkContext.master.startswith("local"):
        session.sparkContext.pythonExec = python = sys.executable
        session.sparkContext.environment.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return python == sys.executable


def _python_of(session: SparkSession) -> str | None:
    """What the session's workers are started with; None where a server knows."""
    try:
        return str(session.sparkContext.pythonExec)
    except AttributeError:  # as Connect's sessions raise it
        return None


def require_workers(session: SparkSession) -> None:
    """Run one task that imports the data source. Raises SparkFailed naming the workers' Python and what it lacks."""

    def name_it(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        importlib.import_module("lsm_core.spark.data_source")
        yield from batches

    try:
        session.range(0, 1, 1, 1).mapInArrow(name_it, "id BIGINT").collect()
    except Exception as error:
        lines = re.findall(r"^\s*(?:\[?\w+(?:Error|Exception|MISMATCH)\b.*)$", str(error), re.MULTILINE)
        cause = lines[-1].strip() if lines else "it did not start"
        python = _python_of(session) or "the server's"
        advice = f"set PYSPARK_PYTHON to a Python that has dredge[spark] (such as {sys.executable}) before the session is made"
        reason = f"the Python of Spark's workers ({python}) cannot use it: {cause}; {advice}"
        raise SparkFailed("registering the data source dredge", reason) from error


@cache
def this_executor() -> str:
    """Who runs this task, for the ledger: "executor 2 on host-7", "the driver on host-7" where a local session has no executors.

    Spark tells its Python workers nothing of it. On Kubernetes the pod's environment does; elsewhere the command line of the JVM that
    started this worker (Linux); without either it is "an executor on host-7".
    """
    host = socket.gethostname()
    number = os.environ.get("SPARK_EXECUTOR_ID", "")
    if number:
        return f"executor {number} on {host}"
    for words in _parents():
        if "--executor-id" in words[:-1]:
            return f"executor {words[words.index('--executor-id') + 1]} on {host}"
        if any(word.startswith("org.apache.spark.") for word in words):
            return f"the driver on {host}"
    return f"an executor on {host}"


def _parents() -> Iterator[list[str]]:
    """Command lines of the processes above this one, the nearest first; none where there is no /proc."""
    process = os.getppid()
    while process > 1:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
            stat = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace")
        except OSError:
            return
        yield words
        process = int(stat.rpartition(")")[2].split()[1])


# -- tasks: one payload of bytes in, one answer of bytes out -----------------------------------------------------------


_BATCH_CONF: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
ANSWER_DDL: Final = "task INT, answer BINARY, failure BINARY"
ANSWER_SCHEMA: Final = pa.schema([("task", pa.int32()), ("answer", pa.binary()), ("failure", pa.binary())])
PAYLOADS: Final = pa.schema([("task", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True)
class Outcome:
    """What one task (numbered like its payload) came to: ``answer``, or the ``error`` that ended it."""

    task: int
    answer: bytes = b""
    error: DredgeError | None = None


def store_of(table: Any) -> TableStore:
    """Return the store of a `Table` (or the store itself).

    Raises UnsupportedFeature for a system table, whose store is that of the table it tells about, and for anything else.
    """
    if isinstance(table, TableStore):
        return table
    from lsm_core.table import Table  # not at the top: writer tasks import this module, and need no facade

    if isinstance(table, Table):
        return table.store
    name = getattr(table, "name", None)
    if name is not None:
        raise UnsupportedFeature("writing or maintaining a system table, which can only be read", str(name))
    raise UnsupportedFeature(f"a Spark job on {type(table).__name__}: pass a Table or a TableStore")


DEFAULT_SLOTS: Final = 8
"""Tasks that run at once where nobody tells."""


def slots_of(spark: SparkSession) -> int:
    """Return how many tasks run at once; a session of Spark Connect does not tell, its shuffles are made for about as many."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:  # as Connect's sessions raise it
        return int(str(spark.conf.get("spark.sql.shuffle.partitions", str(DEFAULT_SLOTS))))


@contextmanager
def batches_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Arrow batches between Spark and Python of ``size`` bytes at most; the session's own setting comes back."""
    before = spark.conf.get(_BATCH_CONF, None)
    spark.conf.set(_BATCH_CONF, str(size))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_BATCH_CONF)
        else:
            spark.conf.set(_BATCH_CONF, before)


def run_tasks(
    spark: SparkSession, what: str, payloads: Sequence[bytes], work: Callable[[bytes], bytes]
) -> list[Outcome]:
    """Run ``work`` on every payload, one Spark task each, and return the outcomes in payload order.

    A task that raises is an outcome like another: the caller learns what the others did and can clean up after them. A worker that
    dies, or a Spark that does, raises SparkFailed(``what``). ``work`` must be importable by the workers.
    """
    if not payloads:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in range(batch.num_rows):  # one per task
                number = batch.column("task")[place].as_py()
                try:
                    done = work(batch.column("payload")[place].as_py())
                except Exception as error:  # noqa: BLE001  (reported as an outcome: see run_tasks)
                    yield failure(number, error)
                else:
                    yield answer(number, done)

    rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
    use_this_python(spark)
    with translated(what):
        spread = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
        return collect(spread.mapInArrow(run, ANSWER_DDL), what)


def collect(answers: DataFrame, what: str) -> list[Outcome]:
    """Fetch a job's answers (`ANSWER_DDL`) and return them in task order; this is all that comes to the driver."""
    with translated(what):
        found = answers.toArrow().sort_by("task")
    tasks, done, failed = (found.column(name).to_numpy(zero_copy_only=False) for name in ANSWER_SCHEMA.names)
    return [
        Outcome(int(tasks[i]), done[i] or b"", decode(failed[i], what) if failed[i] else None)
        for i in range(found.num_rows)  # one per task
    ]


def raise_first(outcomes: Sequence[Outcome]) -> None:
    """Raise the error of the first task that failed, if one did."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def answer(task: int, data: bytes) -> pa.RecordBatch:
    """Return a task's answer as the one row (`ANSWER_SCHEMA`) it yields."""
    return pa.RecordBatch.from_pydict({"task": [task], "answer": [data], "failure": [None]}, schema=ANSWER_SCHEMA)


def failure(task: int, error: Exception) -> pa.RecordBatch:
    """Return a task's error as the one row (`ANSWER_SCHEMA`) it yields."""
    return pa.RecordBatch.from_pydict(
        {"task": [task], "answer": [None], "failure": [encode(error)]}, schema=ANSWER_SCHEMA
    )


__all__ = [
    "ANSWER_DDL",
    "DEFAULT_SLOTS",
    "PAYLOADS",
    "BatchFunction",
    "Outcome",
    "WorkerError",
    "answer",
    "batches_of",
    "collect",
    "decode",
    "encode",
    "failure",
    "marked",
    "raise_first",
    "require_workers",
    "run_tasks",
    "shipped",
    "slots_of",
    "store_of",
    "this_executor",
    "translated",
    "typed",
    "use_this_python",
]
