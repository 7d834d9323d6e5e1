"""Metadata reads: regular files within the size of their kind; anything else is refused at once."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile
from lsm_core.storage import LocalFileIO
from lsm_core.storage.file_io import most_bytes


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["LATEST", "snapshot-1", "schema-0", "tag-x", "consumer-c", "holding-1", "a.json"])
def test_a_fifo_is_refused_and_blocks_nobody(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    os.mkfifo(path)
    for read in (LocalFileIO().read_bytes, LocalFileIO().open_input):
        with pytest.raises(CorruptFile, match="not a regular file") as caught:
            read(path)
        assert caught.value.path == path


@pytest.mark.timeout(20)
def test_sockets_and_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's whole path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("LATEST")
        (tmp_path / "snapshot-1").symlink_to("/dev/zero")
        for name in ("LATEST", "snapshot-1"):
            for read in (LocalFileIO().read_bytes, LocalFileIO().open_input):
                with pytest.raises(CorruptFile):
                    read(str(tmp_path / name))


@pytest.mark.parametrize("name", ["LATEST", "EARLIEST", "snapshot-1", "schema-0", "dredge/plans/a.json", "manifest-x"])
def test_a_sparse_file_is_refused_by_its_size(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        out.truncate(most_bytes(str(path)) + 1)
    with pytest.raises(CorruptFile, match="at most"):
        LocalFileIO().read_bytes(str(path))
