"""Statistics that ANALYZE left: the file that a snapshot names. Source class: ``StatsFileHandler``."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.side_files import Statistics
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore

PREFIX: Final = "stat-"
"""How the names of statistics files begin."""


def read_statistics(store: TableStore, snapshot: Snapshot) -> Statistics | None:
    """Return the statistics that ``snapshot`` carries, None without any. Raises CorruptFile (a missing file, too).

    They describe the snapshot that they name, which may be an older one.
    """
    if snapshot.statistics is None:
        return None
    path = store.statistics_path(snapshot.statistics)
    try:
        return Statistics.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error


__all__ = ["PREFIX", "read_statistics"]
