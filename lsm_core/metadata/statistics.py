"""Statistics of ANALYZE: reading the statistics file that a snapshot refers to.

Source: ``StatsFileHandler``.
"""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.side_files import Statistics
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore

PREFIX: Final = "stat-"
"""Prefix of the names of statistics files."""


def read_statistics(store: TableStore, snapshot: Snapshot) -> Statistics | None:
    """Return the statistics of a snapshot; they may have been computed for an older snapshot, whose id they contain.

    Returns:
        The statistics, or None if the snapshot has none.

    Raises:
        CorruptFile: the file is missing or damaged.
    """
    if snapshot.statistics is None:
        return None
    path = store.statistics_path(snapshot.statistics)
    try:
        return Statistics.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
