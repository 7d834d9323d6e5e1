"""Basics of every Spark job of Dredge: coarse Python tasks, and errors that keep their type on the way to the driver.

No table data passes the driver.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core import __version__, errors
from lsm_core.errors import CorruptFile, DredgeError, SparkFailed, UnsupportedFeature
from lsm_core.json_text import parse_json
from lsm_core.metadata.store import TableStore
from lsm_core.spark.session_catalog import table_of
from lsm_core.storage import KeySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

IN_CATALOG: Final = (
    "tables of Spark's own catalog (CREATE TABLE ... USING dredge, saveAsTable): Spark hands their options on to no "
    "read. Use CREATE TEMPORARY VIEW name USING dredge OPTIONS (warehouse '...', table 'db.table') and save(); tables "
    "are created by lsm_core.Catalog.create_table. DROP TABLE removes an entry that is there already, and no data"
)
"""Message of the error for a table of Spark's own catalog in this format."""

# -- versions: driver and workers run the same release --------------------------------------------------------------


@dataclass(frozen=True)
class Versions:
    """Versions of packages in a process.

    The driver sends its versions with every function, and workers compare these versions with their own.

    Attributes:
        dredge: version of Dredge.
        python: version of Python ("3.12").
        pyarrow: version of PyArrow.
        pyspark: version of PySpark.
    """

    dredge: str
    python: str
    pyarrow: str
    pyspark: str

    @classmethod
    @cache
    def here(cls) -> Versions:
        """Return the versions of this process."""
        pyspark = importlib.import_module("pyspark")
        return cls(__version__, f"{sys.version_info[0]}.{sys.version_info[1]}", pa.__version__, pyspark.__version__)

    def require_here(self) -> None:
        """Check that this process runs the same Dredge and Python, and the same major PyArrow and PySpark.

        The minor versions of PyArrow and PySpark may differ, because a client of Spark Connect may be older than its
        server.

        Raises:
            SparkFailed: The versions differ; the error names those of both sides.
        """
        mine = Versions.here()
        if mine == self:
            return
        pairs = [(field.name, getattr(self, field.name), getattr(mine, field.name)) for field in fields(self)]
        major = ("pyarrow", "pyspark")
        differ = [
            f"{name} {driver} on the driver and {worker} on the worker"
            for name, driver, worker in pairs
            if (driver.partition(".")[0] != worker.partition(".")[0] if name in major else driver != worker)
        ]
        if differ:
            raise SparkFailed("comparing versions", f"{'; '.join(differ)}: give both sides the same")


# -- errors between processes: a typed error of a worker is the same typed error on the driver -------------------------


_MARK: Final = re.compile(r"DREDGE-ERROR\[([A-Za-z0-9+/=]+)\]")
_MISSING_PATH: Final = re.compile(r"PATH_NOT_FOUND\] Path does not exist: (?:file:)?(\S.*?)\. SQLSTATE")
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (?:file:/{0,2}(?=/))?(\S.*?)\.\s+SQLSTATE")
_TELLING: Final = re.compile(
    r"(Python worker exited[^.\n]*|Python worker failed to connect back|Connection refused|"
    r"OutOfMemoryError[^\n]*|No space left on device)"
)
_CONDITION: Final = re.compile(r"\[([A-Z_]+)[\].]")
_SENTENCES: Final = {
    "UNRESOLVED_COLUMN": "a column does not exist: name a column of its tables",
    "UNRESOLVED_ROUTINE": "a function does not exist: use a function of Spark",
    "AMBIGUOUS_REFERENCE": "several tables have the column: name it as table.column",
    "PARSE_": "it is not a query in Spark SQL: correct it at the place that Spark names",
    "DATATYPE_MISMATCH": "the types of an expression do not fit each other: CAST them",
    "WRONG_NUM_ARGS": "a function does not take that number of arguments",
    "MISSING_AGGREGATION": "a column is neither in GROUP BY nor in an aggregate function: add it to one of them",
    "MISSING_GROUP_BY": "a column is neither in GROUP BY nor in an aggregate function: add it to one of them",
    "CAST_INVALID_INPUT": "a value does not have the type of its CAST: select other rows, or use try_cast",
    "DIVIDE_BY_ZERO": "a division by zero: select other rows, or use nullif(divisor, 0)",
    "ARITHMETIC_OVERFLOW": "a number is too large for its type: CAST it to a larger one",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": "a subquery in place of a value has several rows: use LIMIT 1 in it",
}
"""Sentences for users by the beginning of Spark's error condition."""
_OTHER_PYTHON: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH\].*?different version: ([\d.]+) than that in driver: ([\d.]+)"
)
_NO_DREDGE: Final = re.compile(
    r"(?:ModuleNotFoundError|ImportError): (No module named '?(?:lsm_core|pyarrow|numpy)[^\n]*)"
    r"|AttributeError: (Can't get attribute [^\n]*lsm_core[^\n]*)"
)


_VERSIONS: Final = "_versions"
_LACKS: Final = "the Python of Spark's workers cannot use it"
_GIVE_IT: Final = "give them a Python that has dredge[spark] of the driver's version, or Dredge's wheel by --py-files"


class WorkerError(RuntimeError):
    """Error that a worker raises to Spark: the text of a typed error, and a form that the driver can rebuild."""


def encode(error: BaseException) -> bytes:
    """Return an error as JSON: class name and constructor arguments of a DredgeError, the text of any other error."""
    if isinstance(error, DredgeError) and hasattr(errors, type(error).__name__):
        _, (_, args, kwargs) = error.__reduce__()
        value: dict[str, Any] = {"type": type(error).__name__, "args": list(args), "kwargs": kwargs}
    else:
        frames = traceback.extract_tb(error.__traceback__)  # it stays in the worker
        place = f" (at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
        value = {"type": "", "args": [f"{type(error).__name__}: {error}{place}"], "kwargs": {}}
    return json.dumps(value, default=repr).encode()


def decode(data: bytes, title: str) -> DredgeError:
    """Rebuild an error from its JSON form (:func:`encode`); an error that is no DredgeError becomes SparkFailed.

    ``title`` describes the work that failed, for the text of SparkFailed.
    """
    value = parse_json(data)
    kind = getattr(errors, value["type"], None) if value["type"] else None
    if isinstance(kind, type) and issubclass(kind, DredgeError):
        return kind(*value["args"], **value["kwargs"])
    return SparkFailed(title, str(value["args"][0]))


class Shipped:
    """Function of a job (`mapInArrow`) that is sent to tasks by name, with its arguments.

    Tasks thus receive no code and no path of the driver. Typed errors of the function survive Spark's wrapping. Workers
    must be able to import ``function``, which is called as ``function(*arguments, batches)``. A worker whose versions
    differ from those of the driver refuses to run the function.
    """

    def __init__(self, function: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> None:
        self._function, self._arguments, self._versions = function, arguments, Versions.here()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the function in a task.

        Raises WorkerError for a typed error, including SparkFailed if versions differ.
        """
        try:
            self._versions.require_here()
            yield from self._function(*self._arguments, batches)
        except DredgeError as error:
            raise WorkerError(marked(error)) from error


def shipped_store(text: str) -> TableStore:
    """Open the table that `TableStore.to_json` described, in a task.

    A table whose store needs keys of a catalog server gets them with the server's token from this process's
    environment.
    """
    return TableStore.from_json(text, keys_from_spec=_keys_from_spec)


def _keys_from_spec(spec: Mapping[str, Any]) -> KeySource:
    from lsm_core.table.rest_keys import keys_from_spec  # few tables need the client of a catalog server

    return keys_from_spec(spec)


def marked(error: DredgeError) -> str:
    """Return the text that a worker raises: the error's own text and its encoded form."""
    return f"{error} DREDGE-ERROR[{base64.b64encode(encode(error)).decode()}]"


def raises_typed_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that Spark calls so that its typed errors can be recognized on the driver.

    The Python trace of such an error begins with the error's message and contains the encoded error as a note. Spark's
    exception on the driver has this trace as text, in which `typed_error` finds the note.
    """

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except DredgeError as error:
            note_error(error)
            raise

    return call


class OfOneRelease:
    """Base of objects that a data source sends to tasks; only workers with the same versions unpack them."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, _VERSIONS: Versions.here()}

    @raises_typed_errors
    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state. Raises SparkFailed, naming the versions of both sides, if they differ."""
        own = dict(state)
        versions = own.pop(_VERSIONS)
        versions.require_here()
        self.__dict__.update(own)


def note_error(error: DredgeError) -> DredgeError:
    """Return ``error`` with the note by which `typed_error` finds it in a trace of Spark."""
    note = marked(error).removeprefix(f"{error} ")
    if note not in getattr(error, "__notes__", ()):
        _lead(error)
        error.add_note(note)
    return error


def _lead(error: DredgeError) -> None:
    """Make Python's trace of ``error``, which Spark shows, begin with the error's message.

    A trace begins with the first cause. A copy of the error becomes this cause; it has no trace of its own, so Python
    prints only its message.
    """
    first: BaseException = error
    seen = {id(first)}
    while True:
        cause = first.__cause__ or (None if first.__suppress_context__ else first.__context__)
        if cause is None or id(cause) in seen:
            break
        first = cause
        seen.add(id(first))
    kind = type(error)
    make, arguments = error.__reduce__()[:2]
    first.__cause__ = make(*arguments)
    chain = error.__cause__ or error.__context__
    # Spark's workers take the cause away where they shorten a trace (`simplifiedTraceback`), so it must not be
    # removable.
    kept = property(lambda _: chain, lambda _, __: None)
    members = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__cause__": kept}
    error.__class__ = type(kind.__name__, (kind,), members)


def await_query(query: StreamingQuery, timeout_s: float | None = None) -> bool:
    """Wait until a streaming query ends.

    Args:
        query: Running streaming query.
        timeout_s: Maximum seconds to wait; None for no limit.

    Returns:
        Whether the query has ended.

    Raises:
        SnapshotNotFound: The next snapshot has expired, or the table was rolled back.
        InvalidOption: The checkpoint belongs to another table.
        CommitConflict: Another query uses the same query id.
        SparkFailed: Any other error, as one line. Spark's own error with its trace is the cause.
    """
    with translate_errors(f"the query {query.name or query.id}"):
        if timeout_s is None:
            query.awaitTermination()
            return True
        return bool(query.awaitTermination(timeout_s))


@contextmanager
def translate_errors(title: str) -> Iterator[None]:
    """Convert errors that Spark raises in the block into the worker's typed error, or into SparkFailed(``title``)."""
    try:
        yield
    except DredgeError:
        raise
    except Exception as error:
        modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
        if not modules & {"pyspark", "py4j", "grpc"} and not isinstance(error, (ConnectionError, EOFError)):
            raise  # none of Spark's
        raise typed_error(error, title) from error


def typed_error(error: BaseException, title: str) -> DredgeError:
    """Return the typed error inside an exception of Spark, or SparkFailed(``title``) if there is none."""
    text = str(error)
    mark = _MARK.search(text)
    if mark is not None:
        return decode(base64.b64decode(mark.group(1)), title)
    missing = _MISSING_PATH.search(text)
    if missing is not None:
        return CorruptFile(missing.group(1), "the file is missing")
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return CorruptFile(unreadable.group(1), "it cannot be read as Parquet")
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        worker, driver = other.groups()
        return SparkFailed(
            "comparing versions", f"python {driver} on the driver and {worker} on the worker: give both sides the same"
        )
    lacking = _NO_DREDGE.search(text)
    if lacking is not None:
        return SparkFailed(title, f"{_LACKS}: {lacking.group(1) or lacking.group(2)}; {_GIVE_IT}")
    telling = _TELLING.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if telling is None and lines and (condition := _CONDITION.match(lines[0])) is not None:
        sentence = next((words for name, words in _SENTENCES.items() if condition[1].startswith(name)), "")
        return SparkFailed(title, f"{sentence} ({lines[0]})" if sentence else lines[0])
    return SparkFailed(title, telling.group(1) if telling else (lines[0] if lines else type(error).__name__))


# -- the workers' Python --------------------------------------------------------------------------------------------


def use_this_python(session: SparkSession) -> bool:
    """Make the workers of a session import this `lsm_core`; workers of a local session run this Python.

    Plain PySpark starts the `python3` of the PATH, which has no Dredge unless an environment is activated. Sessions
    with PYSPARK_PYTHON, clusters, and Connect, whose server decides, are not changed. If this `lsm_core` was imported
    from an archive (a wheel given to `spark-submit --py-files`), workers of every classic session get that archive.

    Returns:
        Whether the workers are known to have this `lsm_core`.
    """
    python = python_of(session)
    if python is None:
        return False
    archive = next((path for path in Path(__file__).parents if path.is_file()), None)
    if archive is not None:
        _send_archive(session, archive)
    local = session.sparkContext.master.startswith("local")
    if local and "PYSPARK_PYTHON" not in os.environ:
        session.sparkContext.pythonExec = python = sys.executable
        if archive is None:
            session.sparkContext.environment.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return local and python == sys.executable


def _send_archive(session: SparkSession, archive: Path) -> None:
    """Make the workers import `lsm_core` from ``archive``, the wheel or zip file from which this process runs.

    Spark passes `.zip` files of --py-files to the workers, but not `.whl` files.
    """
    from pyspark import SparkFiles

    context = session.sparkContext
    name = archive.with_suffix(".zip").name
    if name in (context._python_includes or ()):
        return
    # the driver serves the file from its folder, which Spark removes at the end
    folder = tempfile.mkdtemp(prefix="dredge-archive-", dir=SparkFiles.getRootDirectory())
    context.addPyFile(str(shutil.copyfile(archive, f"{folder}/{name}")))


def python_of(session: SparkSession) -> str | None:
    """Return the path of the Python program that runs the session's workers, or None on Connect."""
    try:
        return str(session.sparkContext.pythonExec)
    except AttributeError:  # as Connect's sessions raise it
        return None


@cache
def this_executor() -> str:
    """Return the executor that runs this task, for the ledger.

    For example "executor 2 on host-7", or "the driver on host-7" if a local session has no executors. Spark does not
    pass the executor's id to Python workers. The id comes from the pod's environment on Kubernetes, elsewhere from the
    command line of the JVM that started this worker (Linux). If the id is unknown, the text is "an executor on host-7".
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
    """Yield the command lines of the processes above this one, the nearest first; none without /proc."""
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
class TaskOutcome:
    """Outcome of task number ``task`` (the index of its payload): its ``answer``, or the ``error`` that ended it."""

    task: int
    answer: bytes = b""
    error: DredgeError | None = None


def store_of(table: Any, spark: SparkSession | None = None) -> TableStore:
    """Return the `TableStore` of a table.

    Args:
        table: A `Table`, the name of a table, or a `TableStore`, which is returned unchanged.
        spark: The session whose settings name the warehouse of a table name, or None.

    Raises:
        TableNotFound: The table was dropped, renamed or replaced since it was opened.
        UnsupportedFeature: ``table`` is a system table, whose store is that of its base table, or no table at all.
    """
    if isinstance(table, TableStore):
        return table
    from lsm_core.table import Table  # not at the top: writer tasks import this module, and need no facade

    table = table_of(spark, table)
    if isinstance(table, Table):
        table.store.require_same()
        return table.store
    name = getattr(table, "name", None)
    if name is not None:
        raise UnsupportedFeature("writing or maintaining a system table, which can only be read", str(name))
    raise UnsupportedFeature(f"a Spark job on {type(table).__name__}: pass a Table, a TableStore or a table's name")


DEFAULT_SLOTS: Final = 8
"""Default number of tasks that run at once."""


def slots_of(spark: SparkSession) -> int:
    """Return the number of tasks that run at once.

    A session of Spark Connect does not expose this number. Its number of shuffle partitions, which is about as large,
    is returned instead.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:  # as Connect's sessions raise it
        return int(str(spark.conf.get("spark.sql.shuffle.partitions", str(DEFAULT_SLOTS))))


@contextmanager
def batches_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Limit Arrow batches between Spark and Python to ``size`` bytes in the block.

    The session's own setting is restored afterwards.
    """
    with setting(spark, _BATCH_CONF, str(size)):
        yield


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Set ``key`` of the session in the block, then restore its previous value."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def run_tasks(
    spark: SparkSession, title: str, payloads: Sequence[bytes], work: Callable[[bytes], bytes]
) -> list[TaskOutcome]:
    """Run ``work`` on every payload in one Spark task each, and return the outcomes in payload order.

    A task that raises has an outcome with an error, so that the caller can clean up after the other tasks.

    Args:
        spark: The session.
        title: Description of the work, for errors.
        payloads: Input of each task.
        work: Function of a task; workers must be able to import it.

    Raises:
        SparkFailed: A worker or Spark itself ended unexpectedly.
    """
    if not payloads:
        return []

    rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
    use_this_python(spark)
    with translate_errors(title):
        spread = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
        return collect(spread.mapInArrow(Shipped(_each, work), ANSWER_DDL), title)


def _each(work: Callable[[bytes], bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in range(batch.num_rows):  # one per task
            number = batch.column("task")[place].as_py()
            try:
                done = work(batch.column("payload")[place].as_py())
            except Exception as error:  # noqa: BLE001  (reported as an outcome: see run_tasks)
                yield failure(number, error)
            else:
                yield answer(number, done)


def collect(answers: DataFrame, title: str) -> list[TaskOutcome]:
    """Fetch a job's answers (`ANSWER_DDL`) and return them in task order; the driver receives nothing else."""
    with translate_errors(title):
        rows = answers.toArrow().sort_by("task")
    tasks, done, failed = (rows.column(name).to_numpy(zero_copy_only=False) for name in ANSWER_SCHEMA.names)
    return [
        TaskOutcome(int(tasks[i]), done[i] or b"", decode(failed[i], title) if failed[i] else None)
        for i in range(rows.num_rows)  # one per task
    ]


def raise_first(outcomes: Sequence[TaskOutcome]) -> None:
    """Raise the error of the first task that failed, if one did."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def answer(task: int, data: bytes) -> pa.RecordBatch:
    """Return a task's answer as a batch of one row (`ANSWER_SCHEMA`)."""
    return pa.RecordBatch.from_pydict({"task": [task], "answer": [data], "failure": [None]}, schema=ANSWER_SCHEMA)


def failure(task: int, error: Exception) -> pa.RecordBatch:
    """Return a task's error as a batch of one row (`ANSWER_SCHEMA`)."""
    return pa.RecordBatch.from_pydict(
        {"task": [task], "answer": [None], "failure": [encode(error)]}, schema=ANSWER_SCHEMA
    )
