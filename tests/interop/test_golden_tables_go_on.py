"""Every golden table is written on and compacted by Dredge: Java then reads what it reads of a copy that it wrote and compacted itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError
from lsm_core.metadata.store import POSTPONE_BUCKET
from lsm_core.metadata.support import Purpose, unsupported
from tests.golden.cases import Case, cases
from tests.interop.values import canonical, difference, rows_of_arrow, table_of
from tests.support.peers import peer_module
from tests.support.samples import one_in

REWRITTEN = 8
"""Rows written again, with the values of their neighbours."""


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, str]]:
    """What became of each table, printed at the end."""
    outcomes: dict[str, str] = {}
    yield outcomes
    refused = {name: why for name, why in outcomes.items() if why}
    print(f"\ngolden tables written on: {', '.join(sorted(outcomes.keys() - refused.keys()))}", file=sys.stderr)
    print(f"refused: {', '.join(f'{name} ({why})' for name, why in sorted(refused.items()))}", file=sys.stderr)


@pytest.mark.paimon_java
@pytest.mark.parametrize("case", one_in(16, cases()), ids=lambda case: case.name)
def test_a_golden_table_goes_on(case: Case, tmp_path: Path, java_session: Any, told: dict[str, str]) -> None:
    store = case.unpack(tmp_path / "ours")
    twin = case.unpack(tmp_path / "theirs")
    refusals = unsupported(store, Purpose.COMPACT)
    told[case.name] = refusals[0] if refusals else ""
    if refusals:
        pytest.skip(f"refused: {refusals[0]}")

    def java(op: str, place: str, **given: Any) -> Any:
        return java_session.call(op, warehouse=place, table="db.t", **given)

    ours, theirs = (str(Path(table.root).parent.parent) for table in (store, twin))
    types = {field.name: field.type for field in store.schema.fields}
    waits = store.options.bucket == POSTPONE_BUCKET  # for a bucket, which the peer cannot give: Dredge does it for both
    for place in (ours, theirs) if waits else ():
        assert Catalog(place).table("db.t").compact().rows_assigned
    rows = java("read", ours)["rows"][:REWRITTEN]
    fixed = {*store.schema.primary_keys, *store.schema.partition_keys}
    mixed = [
        {name: (row if name in fixed else other)[name] for name in types}
        for row, other in zip(rows, [*rows[1:], *rows[:1]], strict=True)
    ]
    assert mixed
    kind_field = store.options.rowkind_field
    if kind_field:
        mixed = [{**row, kind_field: "+I"} for row in mixed]
    given = {"rows": [{"_kind": "+I", **row} for row in mixed], "compact": "none"}
    if case.story["schema"]["options"].get("bucket") != store.schema.options.get("bucket"):
        # a partition keeps its number of buckets until it is overwritten
        with pytest.raises(peer_module().PeerError, match="new bucket num"):
            java("write", theirs, **given)
        with pytest.raises(DredgeError, match="bucket"):
            Catalog(ours).table("db.t").write(table_of(mixed, types))
        return
    java("write", theirs, **given)
    Catalog(ours).table("db.t").write(table_of(mixed, types))
    for full in (False, True):
        if store.options.get("type") == "table":
            Catalog(ours).table("db.t").compact(full=full)
            if waits:
                Catalog(theirs).table("db.t").compact(full=full)
            else:
                java("compact", theirs, full=full)
    options = store.schema.options
    hashed = [
        name
        for name in types
        if options.get(f"fields.{name}.distinct") == "true" or f"fields.{name}.nested-key" in options
    ]

    def texts(rows: list[dict[str, Any]]) -> list[str]:
        # the order within these arrays Java leaves to a hash map
        return canonical(
            [{**row, **{name: sorted(row[name] or [], key=json.dumps) for name in hashed}} for row in rows], types
        )

    expected = texts(java("read", theirs)["rows"])
    found = texts(java("read", ours)["rows"])
    assert found == expected, "Java of ours (found) and of its own: " + difference(found, expected)
    mine = texts(rows_of_arrow(Catalog(ours).table("db.t").to_arrow(), types))
    assert mine == expected, "Dredge (found) and Java: " + difference(mine, expected)
