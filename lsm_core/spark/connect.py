"""Spark Connect server on this machine, so that many short processes (Dagster's runs) share one Spark."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lsm_core.errors import PortInUse, SparkFailed
from lsm_core.json_text import parse_json
from lsm_core.processes import LOOPBACK, end_group, free_port, require_free, start_tick
from lsm_core.spark.session import REMOTE_VARIABLE, TOKEN_VARIABLE, launch_variables, start_conf

SERVER_MASTER = "local[2,4]"
_TITLE = "the Spark Connect server"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STATE = "spark-connect.json"
_LOG = "spark-connect.log"

# Servers outlive this process on purpose. While it runs it is their parent and must reap them.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class ConnectServer:
    """Running Spark Connect server.

    Attributes:
        pid: Process id of the server.
        started: Start tick of the process in the kernel, to detect a reused pid.
        port: Loopback port.
        token: Secret that clients must present. It never appears in ``url`` or on a command line.
        folder: Folder with the server's state and log.
    """

    pid: int
    started: int
    port: int
    token: str
    folder: str

    @property
    def url(self) -> str:
        """Address for clients, without the secret."""
        return f"sc://localhost:{self.port}"

    def environment(self, *, one_session: bool = False) -> dict[str, str]:
        """Return the environment variables with which ``spark_session()`` of a client process connects to the server.

        Args:
            one_session: Whether all clients with this environment share one session, with its settings, views and
                Python workers. Otherwise Spark starts new workers for every session.
        """
        session = f"/;session_id={uuid.uuid4()}" if one_session else ""
        return {REMOTE_VARIABLE: f"{self.url}{session}", TOKEN_VARIABLE: self.token}

    @property
    def log_path(self) -> str:
        """Path of the server's own log."""
        return str(Path(self.folder) / _LOG)


def start_server(
    folder: str | Path,
    *,
    port: int | None = None,
    master: str = SERVER_MASTER,
    conf: Mapping[str, str] | None = None,
    timeout_s: float = 120,
    wait: bool = True,
) -> ConnectServer:
    """Start a server, or return the server that already runs from the same folder.

    The server listens on loopback only and outlives this process.

    Args:
        folder: Folder for the state and the log of the server.
        port: Port of the server; None for a free port.
        master: Spark master of the server.
        conf: Additional Spark settings by key.
        timeout_s: Seconds until the server must answer.
        wait: Whether to wait until the server answers. If false, call :func:`await_server`, which also reports a failed
            start.

    Raises:
        PortInUse: Another process uses the port.
        JavaNotFound: There is no suitable Java.
        SparkFailed: A server of the folder already runs on a port other than ``port``, pyspark is missing, or the
            server ended or did not answer in time. The error contains the first line of the log that reports an error.
    """
    running = running_server(folder)
    if running is not None:
        if port not in (None, running.port):
            raise SparkFailed(_TITLE, f"it already runs on port {running.port}, not {port}: stop it first")
        return running
    tries = 1 if port is not None else 3  # a port found free may be taken before the server binds it
    for attempt in range(1, tries + 1):
        chosen = free_port() if port is None else require_free(port, _TITLE)
        try:
            server = _launch(Path(folder), chosen, master, conf or {})
            return await_server(server, timeout_s) if wait else server
        except PortInUse:
            if attempt == tries:
                raise
    raise SparkFailed(_TITLE, "no free port was found")


def await_server(server: ConnectServer, timeout_s: float = 120) -> ConnectServer:
    """Wait until a server that this process started answers; stop it if it does not.

    Args:
        server: Server that this process started.
        timeout_s: Seconds until the server must answer.

    Raises:
        PortInUse: Another process uses the port.
        SparkFailed: The server ended or did not answer in time. The error contains the first line of the log that
            reports an error.
    """
    process, log = _CHILDREN[server.pid], Path(server.log_path)
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                text = log.read_text("utf-8", "replace")
                if "Address already in use" in text or "BindException" in text:
                    raise PortInUse(_TITLE, LOOPBACK, server.port)
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                lines = [line for line in lines if not line.startswith("at ")]  # frames of a stack
                telling = [line for line in lines if "Exception" in line or "rror" in line]
                cause = (telling or lines or ["no output"])[0]
                raise SparkFailed(_TITLE, f"it ended with code {process.returncode}: {cause} (log: {log})")
            if _answers(server.port):
                return server
            time.sleep(0.1)
        raise SparkFailed(_TITLE, f"it did not answer on port {server.port} within {timeout_s:g} s (log: {log})")
    except BaseException:
        _end(server.pid, server.started, 5)
        (Path(server.folder) / _STATE).unlink(missing_ok=True)
        raise


def running_server(folder: str | Path) -> ConnectServer | None:
    """Return the server recorded in ``folder`` if its process exists and its port answers, otherwise None."""
    try:
        fields = parse_json((Path(folder) / _STATE).read_text("utf-8"))
        server = ConnectServer(**fields)
    except (OSError, ValueError, TypeError):
        return None
    if start_tick(server.pid) != server.started or not _answers(server.port):
        return None
    return server


def stop_server(folder: str | Path, timeout_s: float = 20) -> bool:
    """Stop the server recorded in ``folder`` (TERM, then KILL after ``timeout_s`` seconds).

    Returns:
        Whether the server was running. The record of the server is removed in both cases.
    """
    state = Path(folder) / _STATE
    try:
        server = ConnectServer(**parse_json(state.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return False
    alive = start_tick(server.pid) == server.started
    if alive:
        _end(server.pid, server.started, timeout_s)
    state.unlink(missing_ok=True)
    return alive


def _launch(folder: Path, port: int, master: str, conf: Mapping[str, str]) -> ConnectServer:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_urlsafe(32)
    environment = {**os.environ, **launch_variables(), TOKEN_VARIABLE: token}
    for leaked in ("SPARK_REMOTE", REMOTE_VARIABLE, "SPARK_CONNECT_MODE_ENABLED"):
        environment.pop(leaked, None)
    log = folder / _LOG
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
        process = subprocess.Popen(  # noqa: S603
            _command(port, master, conf, folder),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    _CHILDREN[process.pid] = process
    try:
        server = ConnectServer(process.pid, start_tick(process.pid) or 0, port, token, str(folder))
        draft = folder / f"{_STATE}.{os.getpid()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds the secret
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(asdict(server), stream)
        draft.replace(folder / _STATE)
    except BaseException:
        _end(process.pid, start_tick(process.pid), 5)
        raise
    return server


def _command(port: int, master: str, conf: Mapping[str, str], folder: Path) -> list[str]:
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError as error:
        raise SparkFailed(_TITLE, f"the package pyspark is missing ({error}): install dredge[spark]") from error
    settings = start_conf(
        {
            "spark.sql.warehouse.dir": str(folder.resolve() / "spark-warehouse"),
            **conf,
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
        }
    )
    command = [
        str(Path(_find_spark_home()) / "bin" / "spark-submit"),
        "--class",
        _CLASS,
        "--name",
        "dredge",
        "--master",
        master,
    ]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "spark-internal"]


def _end(pid: int, started: int | None, timeout_s: float) -> None:
    """End the server's process group, and reap the server's process if it is a child of this process.

    Args:
        pid: process id of the server, which is also the id of its process group.
        started: start tick of the server's process, to detect a reused pid; None if unknown.
        timeout_s: seconds to wait after TERM, before KILL.
    """
    child = _CHILDREN.pop(pid, None)
    end_group(pid, lambda: started is not None and start_tick(pid) == started, timeout_s)
    if child is not None:
        child.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False
