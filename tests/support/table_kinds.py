"""Kinds of tables that maintain themselves, and what a few writes leave in each, whatever the door: the cells of docs/semantics.md 4.5."""

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
"""Keys of a write; half of them are those of the write before."""


@dataclass(frozen=True)
class TableKind:
    """A kind of table and its state after `WRITES` writes.

    Attributes:
        name: its row in the table of the docs.
        options: options beside those that make three runs, or three small files, due.
        kinds: a letter for each snapshot: A(PPEND), C(OMPACT).
        runs: sorted runs of the bucket; of an append table, files.
        visible: rows that a batch reader sees.
        changes: rows of all changelogs.
        keyed: whether it has a primary key.
        upserts: whether statements that update rows are possible (first-row keeps what is there).
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
"""A new key is one change, an updated one two."""
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
    """Rows of write ``number``, counted from 0."""
    keys = list(range(number * _KEYS // 2, number * _KEYS // 2 + _KEYS))
    return pa.table([pa.array(keys), pa.array([number] * len(keys))], schema=FIELDS)


def create(root: Path, kind: TableKind, name: str = "db.t") -> Table:
    """Create a table of that kind, which needs three sorted runs or small files for a compaction."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    fixed = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "compaction.min.file-num": "3"}
    options = {"dredge.compaction.inline": "follow", **fixed, **kind.options}
    return catalog.create_table(name, Schema(FIELDS, ["k"] if kind.keyed else [], [], options))


def state(table: Table) -> dict[str, Any]:
    """Snapshots, sorted runs (files of an append table), visible rows and changelog rows, as `expected` has them."""
    table = table.refresh()
    kept = list(snapshots.iterate(table.store))
    (bucket,) = table.health()
    changes = sum(sum(manifests.changelog_entries(table.store, one).column("row_count").to_pylist()) for one in kept)
    return {
        "snapshots": "".join(str(snapshot.commit_kind)[0] for snapshot in kept),
        "runs": bucket.sorted_runs if table.primary_keys else bucket.files,
        "visible": table.to_arrow().num_rows,
        "changes": changes,
    }


def expected(kind: TableKind) -> dict[str, Any]:
    """Return what `state` says after `WRITES` writes, whatever the door."""
    return {"snapshots": kind.kinds, "runs": kind.runs, "visible": kind.visible, "changes": kind.changes}
