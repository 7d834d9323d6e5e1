"""The LATEST and EARLIEST files: a shortcut past listing a directory, never a source of truth. Source: ``HintFileUtils``."""

from __future__ import annotations

import logging
import re

from lsm_core.errors import DredgeError
from lsm_core.storage import FileIO

LATEST, EARLIEST = "LATEST", "EARLIEST"
_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3


def read_hint(file_io: FileIO, folder: str, name: str) -> int | None:
    """Return the id in a hint file, or None when it is absent or no positive number."""
    try:
        text = file_io.read_bytes(f"{folder}/{name}").strip()
    except FileNotFoundError:
        return None
    return int(text) if re.fullmatch(rb"[1-9][0-9]{0,18}", text) else None


def write_hint(file_io: FileIO, folder: str, name: str, value: int) -> bool:
    """Overwrite a hint, in up to 3 attempts. False (and a warning) when none worked: readers then list the directory."""
    for attempt in range(_ATTEMPTS):
        try:
            file_io.overwrite(f"{folder}/{name}", str(value).encode(), durable=False)
            return True
        except (OSError, DredgeError) as error:
            if attempt == _ATTEMPTS - 1:
                _LOG.warning("could not write hint %s/%s: %s", folder, name, error)
    return False


def list_ids(file_io: FileIO, folder: str, prefix: str) -> list[int]:
    """Return the ids of the files ``<prefix><id>`` in ``folder``, ascending."""
    pattern = re.compile(re.escape(prefix) + r"([1-9][0-9]{0,18})")
    found = (pattern.fullmatch(status.name) for status in file_io.list_dir(folder) if not status.is_dir)
    return sorted(int(match.group(1)) for match in found if match)


def find_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the newest id: the hint's when that file exists and the next does not, else by listing."""
    hint = hinted_latest(file_io, folder, prefix)
    # Java trusts the hint without this question; one left over by a rollback would then name a snapshot that is gone.
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return max(list_ids(file_io, folder, prefix), default=None)


def hinted_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the id that LATEST names unless the next one's file is there; whether its own is, the caller finds out by reading it."""
    hint = read_hint(file_io, folder, LATEST)
    return None if hint is None or _is_file(file_io, f"{folder}/{prefix}{hint + 1}") else hint


def _is_file(file_io: FileIO, path: str) -> bool:
    """Whether a file is there: one request in an object store, where `exists` lists the folder of that name too."""
    try:
        file_io.size(path)
    except FileNotFoundError:
        return False
    return True


def find_earliest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the oldest id: the hint's when that file exists, else by listing."""
    hint = read_hint(file_io, folder, EARLIEST)
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return min(list_ids(file_io, folder, prefix), default=None)
