"""What every group of verbs needs: the state of the table."""

from __future__ import annotations

from lsm_core.metadata.store import TableStore


class OnTable:
    """A table seen through some of its verbs; ``store`` is its state for the rooms below."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
