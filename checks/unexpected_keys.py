"""Files with the keys that break expectations: one file of JSON lines per table, bounded, and replaced by each run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dredge.platform_core import names

MOST_BYTES: Final = 16 << 20
"""Size in bytes at which a file ends; its last line then says that lines are missing."""


def file_name_of(table: str) -> str:
    """Return a name for files of a table: letters, digits, ``_`` and ``.``, different for different tables."""
    database, name = names.split(table)
    return f"{names.part(database)}.{names.part(name)}"


def write_keys(folder: Path, table: str, records: Iterable[Mapping[str, Any]]) -> Path | None:
    """Write the unexpected rows of a table's expectations, one JSON object per line, in place of an earlier file.

    Args:
        folder: folder of the file; it is created. Only the user of this process may read the file.
        table: full name of the table.
        records: plain values of the unexpected rows.

    Returns:
        The path of the file, or None if there are no rows; an earlier file is then removed.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder / f"{file_name_of(table)}.jsonl"
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    if not lines:
        with suppress(FileNotFoundError):
            path.unlink()
        return None
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".keys-")
    try:
        with os.fdopen(handle, "wb") as file:
            for position, line in enumerate(lines):
                data = line.encode("utf-8", "replace")
                if file.tell() + len(data) > MOST_BYTES:
                    note = {"note": f"{len(lines) - position} further lines left out: the file is at its limit"}
                    file.write(json.dumps(note).encode() + b"\n")
                    break
                file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
    return path
