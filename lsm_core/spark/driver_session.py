"""Access to the driver's session from the process in which Spark commits a write of the data source.

Spark runs `commit` of a Python data source in a separate Python process without a session. The driver leaves a note in
a folder of Spark that only its user can read. The note has the address of the driver's JVM, which PySpark gives to
every Python program of a driver. Through this JVM, the compaction after the commit runs as a job of the same Spark
application. On a Connect server, which has no Python driver, the committing process itself compacts.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsm_core.json_text import parse_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)
NOTE: Final = "DREDGE_DRIVER_NOTE"
"""Environment variable of Python processes of a session: the path of the driver's note."""
_NAME: Final = "dredge-driver.json"
_LOCK: Final = threading.Lock()
_REACHED: Final[dict[str, Any]] = {}
"""Session that this process has reached, by the path of the note; PySpark allows one context per process."""


def leave_note(session: SparkSession) -> None:
    """Write the note through which other Python processes of the driver reach the driver's session.

    The call has no effect on Connect, and after the first call.

    Args:
        session: A session of this process.
    """
    try:
        context = session.sparkContext
        gateway = context._gateway.gateway_parameters
        folder = context._temp_dir
    except AttributeError:  # as Connect's sessions raise it
        return
    except Exception:  # noqa: BLE001  (Connect's errors; without a note the process compacts by itself)
        return
    if NOTE in context.environment or not gateway.auth_token:
        return
    note = {
        "address": gateway.address,
        "port": gateway.port,
        "token": gateway.auth_token,
        "python": context.pythonExec,
        "includes": list(context._python_includes or ()),
        "variables": sorted(context.environment),
    }
    path = Path(folder, _NAME)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, stat.S_IRUSR | stat.S_IWUSR)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(note, file)
    except OSError as error:
        _LOG.debug("no note for the processes beside the driver: %s", error)
        return
    context.environment[NOTE] = str(path)


def session_of_driver() -> SparkSession | None:
    """Return the session of the driver that this process works for, or None if it cannot be reached."""
    path = os.environ.get(NOTE)
    if not path:
        return None
    with _LOCK:
        if path not in _REACHED:
            if _REACHED:
                return None
            try:
                _REACHED[path] = _reach(path)
            except Exception as error:  # noqa: BLE001  (whatever PySpark raises: this process does the work then)
                _LOG.debug("the driver's session is not reached: %r", error)
                return None
        session: SparkSession = _REACHED[path]
        return session


def _reach(path: str) -> SparkSession:
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    note = _read(path)
    parameters = GatewayParameters(
        address=note["address"], port=int(note["port"]), auth_token=note["token"], auto_convert=True
    )
    gateway = JavaGateway(gateway_parameters=parameters)
    _import_as_pyspark_does(gateway.jvm)
    spark_class = getattr(gateway.jvm, "org.apache.spark.sql.classic.SparkSession")
    session = spark_class.getDefaultSession().get()
    java_context = getattr(gateway.jvm, "org.apache.spark.api.java.JavaSparkContext").fromSparkContext(
        session.sparkContext()
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    finally:
        with suppress(ValueError):  # not in the main thread, where PySpark has set no handler
            signal.signal(signal.SIGINT, before)
    # Spark finds workers by these variables, so tasks of this job use the session's workers. The note has no values,
    # which may be secrets: this process has them itself.
    named = [str(name) for name in note["variables"]]
    context.environment.update({name: os.environ[name] for name in (*named, NOTE) if name in os.environ})
    context.pythonExec = str(note["python"])
    context._python_includes = [str(name) for name in note["includes"]]
    return SparkSession(context, session)


def _read(path: str) -> dict[str, Any]:
    """Read the driver's note from a file. Raises PermissionError for a note that another user wrote or can read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(f"{path} is not this user's alone")
        note: dict[str, Any] = parse_json(file.read())
        return note


def _import_as_pyspark_does(jvm: Any) -> None:
    """Import into ``jvm`` the Java classes that PySpark's Python side calls by names without packages."""
    from py4j.java_gateway import java_import

    for name in (
        "org.apache.spark.SparkConf",
        "org.apache.spark.api.java.*",
        "org.apache.spark.api.python.*",
        "org.apache.spark.sql.*",
        "org.apache.spark.sql.classic.*",
        "scala.Tuple2",
    ):
        java_import(jvm, name)
