"""Starting and stopping a whole Dagster (web server, daemon, code server) for a demo or a test, in a process group of its own."""

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

from lsm_core.processes import LOOPBACK, end_group, free_port, group_lives, require_free
from orchestration.verbs.dagster_client import DagsterClient, PlatformFailed

WEB_SERVER: Final = "Dagster's web server"
_ROOT: Final = Path(__file__).resolve().parents[2]
_LOG: Final = "dagster.log"
INSTANCE: Final = Path(__file__).resolve().parents[1] / "dagster.yaml"
"""Settings of a Dagster instance for the platform; every DAGSTER_HOME gets a copy."""


@dataclass(frozen=True)
class Platform:
    """A running ``dagster dev``: its process group, its folder (DAGSTER_HOME) and its address."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Address of the UI."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """What Dagster wrote to its console."""
        return self.folder / _LOG

    @property
    def client(self) -> DagsterClient:
        """A GraphQL client for it."""
        return DagsterClient(self.url)

    def stop(self, timeout_s: float = 20) -> None:
        """End the whole process group: first politely, then not."""
        group = self.process.pid
        end_group(group, lambda: self.process.poll() is None or group_lives(group), timeout_s)


def start_platform(
    folder: str | Path, environment: Mapping[str, str], *, port: int | None = None, timeout_s: float = 120
) -> Platform:
    """Start ``dagster dev`` with its daemon; its instance lies in ``folder``, ``environment`` adds to this process's own.

    ``port``: a declared port, else a free one. Raises PortInUse, PlatformFailed (it died, did not answer in ``timeout_s``, or
    the code location does not load; the reason is in the text, the console in ``folder/dagster.log``).
    """
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    chosen = free_port() if port is None else require_free(port, WEB_SERVER)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(INSTANCE, home / "dagster.yaml")
    # The workspace file of a checkout; an installed package is named instead.
    file = _ROOT / "workspace.yaml"
    workspace = ["-w", str(file)] if file.is_file() else ["-m", "orchestration.definitions", "-a", "defs"]
    paths = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    quiet = {
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "GX_ANALYTICS_ENABLED": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *(part for part in paths if part != str(_ROOT))]),
    }
    with (home / _LOG).open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", *workspace, "--host", LOOPBACK, "--port", str(chosen)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **quiet, **environment, "DAGSTER_HOME": str(home)},
            start_new_session=True,
        )
    platform = Platform(process, home, chosen)
    try:
        _wait_ready(platform, timeout_s)
    except BaseException:
        platform.stop()
        raise
    return platform


def _wait_ready(platform: Platform, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if platform.process.poll() is not None:
            console = platform.log.read_text("utf-8", "replace").splitlines()
            lines = [line.strip() for line in console if line.strip()]
            telling = [line for line in lines if "Error" in line or "error" in line]
            last = (telling or lines or ["no output"])[-1]
            raise PlatformFailed("start", f"it ended with code {platform.process.returncode}: {last}")
        if _answers(platform.port) and platform.client.loaded():
            return
        time.sleep(0.2)
    raise PlatformFailed("start", f"it did not answer within {timeout_s:g} s (console: {platform.log})")


def _answers(port: int) -> bool:
    try:
        DagsterClient(f"http://{LOOPBACK}:{port}").query("{ version }", timeout_s=5)
    except PlatformFailed:
        return False
    return True
