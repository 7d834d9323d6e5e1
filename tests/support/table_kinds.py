"""Kinds of tables whose writers maintain them, and their state after a few writes (docs/semantics.md 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import manifests, snapshots

FIELDS: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
WRITES: Final = 4
_KEYS: Final = 6
"""Number of keys of a write; half of them are also keys of the previous write."""


@dataclass(frozen=True)
class TableKind:
    """A kind of table and its state after `WRITES` writes.

    Attributes:
        name: name of the row in the table of the docs.
        options: options in addition to the compaction triggers of `create`.
        kinds: one letter per snapshot: A for APPEND, C for COMPACT.
        runs: sorted runs of the bucket, or files of an append table.
        visible: number of rows that a batch reader sees.
        changes: number of rows of all changelogs.
        keyed: whether the table has a primary key.
        upserts: whether statements can update rows; not for first-row, which keeps the old row.
    """

    name: str
    options: Mapping[str, str]
    kinds: str
    runs: int
    visible: int = _KEYS + (WRITES - 1) * _KEYS // 2
    changes: int = 0
    keyed: bool = True
    upserts: bool = True


_EACH: Final = "AC" * WRITES
_CHANGES_EACH: Final = _KEYS + (WRITES - 1) * (_KEYS + _KEYS // 2)
"""Number of changes: one for a new key, two for an updated key."""
KINDS: Final = (
    TableKind("primary key", {}, "AAACA", 2),
    TableKind("`write-only`", {"write-only": "true"}, "AAAA", 4),
    TableKind("`dredge.compaction.inline` = never", {"dredge.compaction.inline": "never"}, "AAAA", 4),
    TableKind("`full-compaction.delta-commits` = 2", {"full-compaction.delta-commits": "2"}, "AACAAC", 1),
    TableKind("`commit.force-compact`", {"commit.force-compact": "true"}, "AAACA", 2),
    TableKind("`force-lookup`", {"force-lookup": "true"}, _EACH, 1),
    TableKind("`deletion-vectors.enabled`", {"deletion-vectors.enabled": "true"}, _EACH, 1),
    TableKind("first-row", {"merge-engine": "first-row"}, _EACH, 1, upserts=False),
    TableKind("lookup changelog", {"changelog-producer": "lookup"}, _EACH, 1, changes=_CHANGES_EACH),
    TableKind("full-compaction changelog", {"changelog-producer": "full-compaction"}, _EACH, 1, changes=_CHANGES_EACH),
    TableKind(
        "vectors, `write-only`",
        {"deletion-vectors.enabled": "true", "write-only": "true"},
        "AAAA",
        4,
        visible=0,
    ),
    TableKind("append, `bucket` = -1", {"bucket": "-1"}, "AAACA", 2, visible=WRITES * _KEYS, keyed=False),
    TableKind("append, buckets", {"bucket": "1", "bucket-key": "k"}, "AAACA", 2, visible=WRITES * _KEYS, keyed=False),
)


def batch(number: int) -> pa.Table:
    """Return the rows of write ``number``, counted from 0."""
    keys = list(range(number * _KEYS // 2, number * _KEYS // 2 + _KEYS))
    return pa.table([pa.array(keys), pa.array([number] * len(keys))], schema=FIELDS)


def create(root: Path, kind: TableKind, name: str = "db.t") -> Table:
    """Create a table of a kind; three sorted runs or small files trigger a compaction."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    fixed = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "compaction.min.file-num": "3"}
    options = {"dredge.compaction.inline": "follow", **fixed, **kind.options}
    return catalog.create_table(name, Schema(FIELDS, ["k"] if kind.keyed else [], [], options))


def state(table: Table) -> dict[str, Any]:
    """Return snapshot kinds, sorted runs (or files), visible rows and changelog rows, in the form of `expected`."""
    table = table.refresh()
    kept = list(snapshots.iterate(table.store))
    (bucket,) = table.health()
    changes = sum(sum(manifests.changelog_entries(table.store, item).column("row_count").to_pylist()) for item in kept)
    return {
        "snapshots": "".join(str(snapshot.commit_kind)[0] for snapshot in kept),
        "runs": bucket.sorted_runs if table.primary_keys else bucket.files,
        "visible": table.to_arrow().num_rows,
        "changes": changes,
    }


def expected(kind: TableKind) -> dict[str, Any]:
    """Return the expected result of `state` after `WRITES` writes, by any writer."""
    return {"snapshots": kind.kinds, "runs": kind.runs, "visible": kind.visible, "changes": kind.changes}
