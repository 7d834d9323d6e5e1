"""Start and stop of a complete Dagster (web server, daemon, code server) in a process group, for a demo or a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dredge.orchestration.verbs.dagster_client import DagsterClient, PlatformFailed
from lsm_core.processes import LOOPBACK, end_group, free_port, group_lives, require_free

WEB_SERVER: Final = "Dagster's web server"
_FILE: Final = "workspace.yaml"
_LOG: Final = "dagster.log"
INSTANCE: Final = Path(__file__).resolve().parents[1] / "dagster.yaml"
"""Settings of the platform's Dagster instance; every DAGSTER_HOME gets a copy."""


@dataclass(frozen=True)
class Platform:
    """Running ``dagster dev`` process with its process group.

    Attributes:
        process: leader of the process group.
        folder: DAGSTER_HOME of the process.
        port: port of the UI.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Address of Dagster's web UI."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """File with Dagster's console output."""
        return self.folder / _LOG

    @property
    def client(self) -> DagsterClient:
        """GraphQL client of the web server."""
        return DagsterClient(self.url)

    def stop(self, timeout_s: float = 20) -> None:
        """End the whole process group: SIGTERM first, SIGKILL after the timeout."""
        group = self.process.pid
        end_group(group, lambda: self.process.poll() is None or group_lives(group), timeout_s)


def start_platform(
    folder: str | Path, environment: Mapping[str, str], *, port: int | None = None, timeout_s: float = 120
) -> Platform:
    """Start ``dagster dev`` with its daemon.

    Args:
        folder: folder of the Dagster instance (DAGSTER_HOME).
        environment: variables in addition to those of this process.
        port: port of the UI, or None for a free one.
        timeout_s: most time until the UI answers, in seconds.

    Raises:
        PortInUse: the port is in use.
        PlatformFailed: ``dagster dev`` ended or did not answer in time, or the code location does not load. The console
            output is in ``folder/dagster.log``.
    """
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    ui_port = free_port() if port is None else require_free(port, WEB_SERVER)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(INSTANCE, home / "dagster.yaml")
    # A checkout has a workspace file; an installed package is addressed by its module.
    checkout = _find_checkout()
    workspace = ["-w", str(checkout / _FILE)] if checkout else ["-m", "dredge.orchestration.definitions", "-a", "defs"]
    paths = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if checkout:
        paths = [str(checkout), *(part for part in paths if part != str(checkout))]
    quiet = {
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "GX_ANALYTICS_ENABLED": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    with (home / _LOG).open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", *workspace, "--host", LOOPBACK, "--port", str(ui_port)],
            cwd=checkout or home,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **quiet, **environment, "DAGSTER_HOME": str(home)},
            start_new_session=True,
        )
    platform = Platform(process, home, ui_port)
    try:
        _wait_ready(platform, timeout_s)
    except BaseException:
        platform.stop()
        raise
    return platform


def _find_checkout() -> Path | None:
    """Return the folder of the workspace file above this module, or None if the module is installed.

    A checkout reaches this module by a link, an unpacked source distribution does not: the depths differ by one.
    """
    return next((folder for folder in Path(__file__).resolve().parents[2:4] if (folder / _FILE).is_file()), None)


def _wait_ready(platform: Platform, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if platform.process.poll() is not None:
            console = platform.log.read_text("utf-8", "replace").splitlines()
            lines = [line.strip() for line in console if line.strip()]
            error_lines = [line for line in lines if "Error" in line or "error" in line]
            last = (error_lines or lines or ["no output"])[-1]
            raise PlatformFailed("start", f"it ended with code {platform.process.returncode}: {last}")
        if _answers(platform.port) and platform.client.is_loaded():
            return
        time.sleep(0.2)
    raise PlatformFailed("start", f"it did not answer within {timeout_s:g} s (console: {platform.log})")


def _answers(port: int) -> bool:
    try:
        DagsterClient(f"http://{LOOPBACK}:{port}").query("{ version }", timeout_s=5)
    except PlatformFailed:
        return False
    return True
