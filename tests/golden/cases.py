"""Golden tables as test cases: unpacked where asked, and which features (never which names) Dredge does not keep up yet."""

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
_SWITCHES = {
    "deletion-vectors.enabled": "deletion vectors",
    "row-tracking.enabled": "row tracking",
    "sequence.snapshot-ordering": "ordering by snapshot",
}
_KNOWN = frozenset(
    [
        "CHAR",
        "VARCHAR",
        "STRING",
        "BOOLEAN",
        "DECIMAL",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DATE",
        "TIMESTAMP",
    ]
)


@dataclass(frozen=True)
class Case:
    """One golden table: its name and what its JSON tells."""

    name: str
    folder: Path

    @property
    def story(self) -> dict[str, Any]:
        """The JSON beside the archive."""
        found: dict[str, Any] = json.loads((self.folder / f"{self.name}.json").read_text())
        return found

    def unpack(self, place: Path) -> TableStore:
        """Extract the warehouse under ``place`` and open its table."""
        return TableStore.open(LocalFileIO(), str(unpack_golden(self.name, place)), "db.t", FixedClock(NOW))


def cases() -> list[Case]:
    """All golden tables of the folder in force; a missing or empty folder, or half a table, is an error."""
    folder, names = golden_dir(), golden_names()
    halves = {path.stem for path in folder.glob("*.json")} ^ set(names)
    if halves:
        raise FileNotFoundError(f"{folder}: no pair of .tar.gz and .json of {', '.join(sorted(halves))}")
    return [Case(name, folder) for name in names]


def unreadable(story: dict[str, Any]) -> str | None:
    """The feature for which even reading is refused, derived from how the table was made; None = Dredge reads it."""
    schema, options = story["schema"], story["schema"].get("options") or {}
    keys = schema.get("primaryKeys") or []
    engine = options.get("merge-engine", "deduplicate")
    if keys and engine != "deduplicate":
        return f"merge engine '{engine}'"
    if int(options.get("bucket", "-1")) == -2:
        return "postponed buckets"
    for key, feature in _SWITCHES.items():
        if options.get(key) == "true":
            return feature
    if options.get("file.format", "parquet") != "parquet" or "file.format.per.level" in options:
        return "file format"
    if any(_is_unknown(field["type"]) for field in schema["fields"]):
        return "of type"
    if any(_changes_columns(step["command"]) for step in story["steps"]):
        return "older schema"
    return None


def unwritable(story: dict[str, Any]) -> str | None:
    """The feature for which writing and compacting are refused; None = Dredge keeps the table up."""
    schema, options = story["schema"], story["schema"].get("options") or {}
    keys, partitions = schema.get("primaryKeys") or [], schema.get("partitionKeys") or []
    bucket = int(options.get("bucket", "-1"))
    found = unreadable(story)
    if found:
        return found
    if "rowkind.field" in options:
        return "rowkind.field"
    if keys and options.get("changelog-producer", "none") != "none":
        return f"changelog producer '{options['changelog-producer']}'"
    if keys and not set(partitions) <= set(keys):
        return "cross-partition"
    if keys and bucket == -1:
        return "dynamic buckets"
    if not keys and bucket > 0:
        return "append tables with buckets"
    if any(name.startswith("file-index.") for name in options):
        return "file index"
    return None


def _is_unknown(kind: Any) -> bool:
    if not isinstance(kind, str):
        return True
    root, _, rest = kind.upper().removesuffix(" NOT NULL").partition("(")
    digits, _, suffix = rest.partition(")")
    if root == "TIMESTAMP":
        return "ZONE" in suffix or int(digits or 6) > 6
    return root not in _KNOWN


def _changes_columns(command: dict[str, Any]) -> bool:
    if command["op"] != "alter" or "$branch" in command.get("table", ""):
        return False
    return any(
        change["change"] not in ("set_option", "remove_option", "update_comment") for change in command["changes"]
    )
