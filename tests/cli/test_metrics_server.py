"""`dredge metrics --listen` serves what `dredge metrics` prints, reads seldom, and stays up when a reading fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lsm_core.cli.app import run
from lsm_core.cli.metrics_server import LatestText, open_server
from lsm_core.errors import DredgeError, InvalidOption
from tests.cli.shell import Shell


@contextmanager
def _served(read_text: Callable[[], str]) -> Iterator[str]:
    server = open_server("0", read_text, 3600)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _status(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_request_gets_the_text_and_other_paths_get_404() -> None:
    with _served(lambda: "dredge_tables 1\n") as url:
        assert _status(f"{url}/metrics?x=1") == (200, "dredge_tables 1\n")
        assert _status(f"{url}/../etc/passwd")[0] == 404
        assert urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", method="HEAD")).read() == b""


def test_a_reading_that_fails_is_a_failed_scrape_without_details_and_the_next_one_succeeds() -> None:
    answers = iter([OSError("/secret/path"), "dredge_tables 2\n"])

    def read_text() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with _served(read_text) as url:
        status, text = _status(f"{url}/metrics")
        assert status == 500 and "OSError" in text and "secret" not in text
        assert _status(f"{url}/metrics") == (200, "dredge_tables 2\n")


def test_scrapes_at_the_same_time_share_one_reading() -> None:
    readings = []
    latest = LatestText(lambda: readings.append(1) or "text", 3600)  # type: ignore[func-returns-value]
    threads = [threading.Thread(target=latest.get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(readings) == 1
    fresh = LatestText(lambda: readings.append(1) or "text", 0)  # type: ignore[func-returns-value]
    assert [fresh.get(), fresh.get()] == ["text", "text"] and len(readings) == 3


@pytest.mark.parametrize("address", ["", "x", "localhost:", "localhost:x", "1:70000", ":-1"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(InvalidOption, match="--listen"):
        open_server(address, str, 1)


def test_the_server_is_local_unless_a_host_is_named_and_a_taken_port_is_an_error() -> None:
    server = open_server("0", str, 1)
    try:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(DredgeError, match="cannot be bound"):
            open_server(f"127.0.0.1:{server.server_address[1]}", str, 1)
    finally:
        server.server_close()


def test_the_verb_serves_until_it_is_terminated(shell: Shell) -> None:
    assert shell("metrics", "--listen", "0", "--json").code != 0
    command = [sys.executable, "-m", "lsm_core.cli", "metrics", "-w", str(shell.place), "--listen", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[1].rstrip(";")
            status, text = _status(url)
            assert status == 200 and 'dredge_table_readable{table="db.t"} 1' in text
            with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), timeout=5) as idle:
                idle.send(b"GET /met")  # a client that never finishes its request stops nobody
                assert _status(url)[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_folder_that_is_no_warehouse_fails_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics", "-w", str(tmp_path / "none"), "--listen", "0"]) == 1
    assert "there is no warehouse" in capsys.readouterr().err
