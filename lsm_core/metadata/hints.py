"""Hint files LATEST and EARLIEST: a valid hint saves a directory listing; readers verify hints before use.

Source: ``HintFileUtils``.
"""

from __future__ import annotations

import logging
import re

from lsm_core.errors import DredgeError
from lsm_core.storage import FileIO

LATEST, EARLIEST = "LATEST", "EARLIEST"
_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3


def read_hint(file_io: FileIO, folder: str, name: str) -> int | None:
    """Return the id in a hint file.

    Args:
        file_io: access to the files.
        folder: directory of the hint.
        name: name of the hint file: LATEST or EARLIEST.

    Returns:
        The id, or None if the file is missing or holds no positive number.
    """
    try:
        text = file_io.read_bytes(f"{folder}/{name}").strip()
    except FileNotFoundError:
        return None
    return int(text) if re.fullmatch(rb"[1-9][0-9]{0,18}", text) else None


def write_hint(file_io: FileIO, folder: str, name: str, value: int) -> bool:
    """Overwrite a hint file, in up to 3 attempts.

    Args:
        file_io: access to the files.
        folder: directory of the hint.
        name: name of the hint file: LATEST or EARLIEST.
        value: the id.

    Returns:
        False, after a logged warning, if every attempt failed; readers then list the directory.
    """
    for attempt in range(_ATTEMPTS):
        try:
            file_io.overwrite(f"{folder}/{name}", str(value).encode(), durable=False)
            return True
        except (OSError, DredgeError) as error:
            if attempt == _ATTEMPTS - 1:
                _LOG.warning("cannot write hint %s/%s, readers list the directory: %s", folder, name, error)
    return False


def list_ids(file_io: FileIO, folder: str, prefix: str) -> list[int]:
    """Return the ids of the files ``<prefix><id>`` in ``folder``, ascending."""
    pattern = re.compile(re.escape(prefix) + r"([1-9][0-9]{0,18})")
    matches = (pattern.fullmatch(status.name) for status in file_io.list_dir(folder) if not status.is_dir)
    return sorted(int(match.group(1)) for match in matches if match)


def find_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the newest id, from the hint if the hint is valid, otherwise from a listing; None if there are no files.

    A hint is valid if the file of the hinted id exists and the file of the next id does not.

    Args:
        file_io: access to the files.
        folder: directory of the files and their hints.
        prefix: start of the files' names, before the id.
    """
    hint = hinted_latest(file_io, folder, prefix)
    # Java skips this check, so a hint that a rollback left behind would name a deleted snapshot.
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return max(list_ids(file_io, folder, prefix), default=None)


def hinted_latest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the id in LATEST, or None if there is no hint or the file of the next id exists.

    The file of the hinted id itself is not checked: the caller notices a missing file when reading it.

    Args:
        file_io: access to the files.
        folder: directory of the files and their hints.
        prefix: start of the files' names, before the id.
    """
    hint = read_hint(file_io, folder, LATEST)
    return None if hint is None or _is_file(file_io, f"{folder}/{prefix}{hint + 1}") else hint


def _is_file(file_io: FileIO, path: str) -> bool:
    """Return whether a file exists, with one request.

    `FileIO.exists` would also list the folder with the same name in an object store.
    """
    try:
        file_io.size(path)
    except FileNotFoundError:
        return False
    return True


def find_hidden(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the oldest id that the hint EARLIEST hides from readers, or None if it hides none.

    Readers, also Java's, begin with the hinted id if its file exists. Only ids that all ids up to the newest follow
    count, because an interrupted expiry leaves single older files.
    """
    hint = read_hint(file_io, folder, EARLIEST)
    ids = list_ids(file_io, folder, prefix)
    if hint not in ids:
        return None
    known = set(ids)
    oldest = hint
    while oldest - 1 in known:
        oldest -= 1
    return oldest if oldest < hint else None


def find_earliest(file_io: FileIO, folder: str, prefix: str) -> int | None:
    """Return the oldest id, from the hint if the hinted file exists, otherwise from a listing; None without files.

    Args:
        file_io: access to the files.
        folder: directory of the files and their hints.
        prefix: start of the files' names, before the id.
    """
    hint = read_hint(file_io, folder, EARLIEST)
    if hint is not None and _is_file(file_io, f"{folder}/{prefix}{hint}"):
        return hint
    return min(list_ids(file_io, folder, prefix), default=None)
