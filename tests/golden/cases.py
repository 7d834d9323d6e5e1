"""Golden tables as test cases, and the features of golden tables that Dredge does not support yet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsm_core.clock import FixedClock
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.support.data import golden_dir, golden_names, unpack_golden

NOW = 1_800_000_000_000

# These, and the stories' `stream`, are read in test_changes.py.
CHANGES = ("incremental-between", "$ro", "$audit_log")


@dataclass(frozen=True)
class Case:
    """One golden table: its name, and the folder with its archive and its JSON file."""

    name: str
    folder: Path

    @property
    def story(self) -> dict[str, Any]:
        """Content of the JSON file beside the archive."""
        found: dict[str, Any] = json.loads((self.folder / f"{self.name}.json").read_text())
        return found

    def unpack(self, place: Path) -> TableStore:
        """Extract the warehouse under ``place`` and open its table."""
        return TableStore.open(LocalFileIO(), str(unpack_golden(self.name, place)), "db.t", FixedClock(NOW))


def cases() -> list[Case]:
    """Return all golden tables of `golden_dir`.

    Raises:
        FileNotFoundError: the folder is missing or empty, or a table has only one of its two files.
    """
    folder, names = golden_dir(), golden_names()
    halves = {path.stem for path in folder.glob("*.json")} ^ set(names)
    if halves:
        raise FileNotFoundError(f"{folder}: no pair of .tar.gz and .json of {', '.join(sorted(halves))}")
    return [Case(name, folder) for name in names]


def of_changes(command: dict[str, Any]) -> bool:
    """Return whether a read is about changes or a system table instead of one version of the table or a branch."""
    asked = (command.get("table", "db.t"), *(command.get("options") or {}))
    return any(sign in text for sign in CHANGES for text in asked)
