"""PostgreSQL for tests of catalogs and locks, started on loopback for the test run if it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lsm_core.processes import free_port
from tests.support.peers import missing

PASSWORD = "open sesame"  # of a server that lives as long as one test process


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None; in Debian, `initdb` is not in PATH."""
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True), shutil.which("initdb")]
    return Path(str(found[0])).parent if found[0] else None


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """Run a server with an empty database in ``folder``; yield the JDBC address, whose user needs `PASSWORD`."""
    bins = programs()
    if bins is None:
        missing("no PostgreSQL (apt-get install postgresql)")
        raise AssertionError
    if importlib.util.find_spec("psycopg") is None:
        missing("no psycopg (run `make setup`)")
    # It refuses to run as root.
    other: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder.chmod(0o755)
    temporary = Path(tempfile.gettempdir())
    for above in folder.parents:
        if not above.is_relative_to(temporary):
            break
        above.chmod(above.stat().st_mode | 0o001)
    data = folder / "data"
    data.mkdir(mode=0o700)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if other:
        shutil.chown(data, "postgres", "postgres")
    run = [
        str(bins / "initdb"),
        "-D",
        str(data),
        "-U",
        "paimon",
        "--auth=scram-sha-256",
        f"--pwfile={secret}",
        "-E",
        "UTF8",
        "-N",
    ]
    done = subprocess.run(
        run, **other, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    assert done.returncode == 0, done.stderr
    port = free_port()
    settings = [
        f"port={port}",
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "max_connections=60",
    ]
    command = [str(bins / "postgres"), "-D", str(data), *(part for setting in settings for part in ("-c", setting))]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, **other, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        ready = [str(bins / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=paimon"
    finally:
        server.send_signal(signal.SIGINT)  # which waits for no client
        server.wait(30)
