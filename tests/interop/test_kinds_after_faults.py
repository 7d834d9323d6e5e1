"""Tables with changelogs, hash indexes and vectors, each after a statement that failed midway or came through: Java, pypaimon and
paimon-rust read what Dredge reads, or refuse by a limit of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm_core.errors import DredgeError
from lsm_core.options import TableOptions
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.kinds import COLUMNS, KINDS, Kind, content, opened
from tests.faults.outcomes import outcome_of
from tests.support.peers import PyPaimon, peer_module
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
SUPPORTED = [name for name, kind in KINDS.items() if kind.refused() is None and kind.commits == 1]


def attempt(kind: Kind, warehouse: Path, name: str, file_io: FaultyFileIO) -> None:
    kind.statement(opened(warehouse, file_io, name))


@pytest.mark.paimon_java
@pytest.mark.parametrize("name", one_in(6, SUPPORTED))
def test_java_reads_a_table_on_which_a_statement_failed_and_goes_on_with_it(
    tmp_path: Path, java: Java, name: str
) -> None:
    kind = KINDS[name]
    kind.fill(kind.create(tmp_path))
    root = tmp_path / "db.db"
    shutil.copytree(root / "t", root / "whole")
    counting = FaultyFileIO(LocalFileIO())
    start = opened(tmp_path, counting, "db.whole").store is not None and counting.steps
    attempt(kind, tmp_path, "db.whole", counting)
    last = counting.steps
    for step in sorted({start + (last - start) * part // 8 for part in (5, 7)}):
        mode: Mode = "after" if step % 2 else "before"
        first = f"db.s{step}"
        shutil.copytree(root / "t", root / f"s{step}")
        outcome_of(partial(attempt, kind, tmp_path, first, FaultyFileIO(LocalFileIO(), step, mode)))
        assert by_java(java, first) == content(opened(tmp_path, name=first)), (name, step, mode)
    new = {"p": "a", "k": 2, "v": -5}
    result = TableOptions(kind.options, "db.t").deletion_vectors_enabled
    java("write", table=first, rows=[new], compact="none" if not kind.keys else "full" if result else "minor")
    found = content(opened(tmp_path, name=first))
    assert by_java(java, first) == found
    assert tuple(new.values()) in found


def by_java(java: Java, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in COLUMNS.names) for row in java("read", table=table)["rows"])


# What each peer cannot do, in its own words; everything else it must read as Dredge does.
LIMITS: dict[str, dict[str, str]] = {"pypaimon": {}, "pypaimon-rust": {}}


@pytest.mark.parametrize("peer", ["pypaimon", pytest.param("pypaimon-rust", marks=pytest.mark.pypaimon_rust)])
def test_python_peers_read_every_kind_or_refuse_it_by_name(
    tmp_path: Path, request: pytest.FixtureRequest, peer: str
) -> None:
    reader: PyPaimon = request.getfixturevalue(peer.replace("-", "_"))
    found: dict[str, str] = {}
    for number, name in enumerate(SUPPORTED):
        kind, table = KINDS[name], f"db.t{number}"
        kind.fill(kind.create(tmp_path, table))
        kind.statement(opened(tmp_path, name=table))
        try:
            theirs = sorted(tuple(row[column] for column in COLUMNS.names) for row in reader.read(table).to_pylist())
        except AssertionError as error:
            found[name] = str(error)
            continue
        if theirs != content(opened(tmp_path, name=table)):
            found[name] = f"other rows: {len(theirs)}"
    assert found.keys() == LIMITS[peer].keys(), found
    assert all(limit in found[name] for name, limit in LIMITS[peer].items())


@pytest.mark.paimon_java
def test_what_java_refuses_to_create_dredge_refuses_too(tmp_path: Path, java: Java) -> None:
    """Every engine x producer x vectors: Dredge may refuse more, by name, never less."""
    fields = [{"name": field.name, "type": "STRING" if field.name == "p" else "BIGINT"} for field in COLUMNS]
    refused = 0
    for engine in ("deduplicate", "first-row", "partial-update", "aggregation"):
        for producer in ("none", "input", "lookup", "full-compaction"):
            for vectors in ("false", "true"):
                options = {
                    "merge-engine": engine,
                    "changelog-producer": producer,
                    "deletion-vectors.enabled": vectors,
                    "bucket": "1",
                }
                name = f"{engine}_{producer}_{vectors}".replace("-", "_")
                schema = {"fields": fields, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": options}
                try:
                    java("create", table=f"db.theirs_{name}", schema=schema)
                except peer_module().PeerError:
                    refused += 1
                    with pytest.raises(DredgeError, match=r"(?s)(changelog-producer|deletion-vectors\.enabled).*ours_"):
                        Kind(len, len, options).create(tmp_path, f"db.ours_{name}")
    assert refused == 9
