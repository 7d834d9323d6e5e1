"""Every type that pypaimon takes goes from Dredge to pypaimon and back; what it refuses is asserted, so that a newer one is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.format.schema import DataField
from lsm_core.types import DataType, TypeRoot, parse, to_arrow
from tests.interop.test_type_round_trips import NESTED, ROW, SCALARS, rows_at_the_edges
from tests.interop.values import Limits, canonical, difference, rows_of_arrow, table_of
from tests.support.peers import PyPaimon
from tests.support.samples import one_in

MULTISET = {"type": "MULTISET", "element": "STRING NOT NULL"}
NANOS = {"type": "ARRAY", "element": "TIMESTAMP(9)"}
_UNITS = {0: "s", 1: "ms", 3: "ms", 6: "us", 9: "ns"}


def is_written_to_avro(kind: Any) -> bool:
    """pypaimon's writer of Avro knows no maps, and no nulls inside of arrays and of ROWs in ROWs."""
    if isinstance(kind, str):
        return not kind.startswith("TIMESTAMP(9)")
    return kind in (ROW, {"type": "ARRAY", "element": "STRING NOT NULL"})


# Nanoseconds in Avro are refused by Dredge already.
REFUSED = [MULTISET, *(kind for kind in NESTED if kind not in (MULTISET, NANOS) and not is_written_to_avro(kind))]


def as_pypaimon(kind: DataType) -> pa.DataType:
    """The Arrow type that pypaimon has for ``kind``."""
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return pa.timestamp(_UNITS[kind.precision or 0], "UTC" if kind.root is TypeRoot.TIMESTAMP_LTZ else None)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return pa.list_(pa.field("item", as_pypaimon(kind.element), kind.element.nullable))
    if kind.root is TypeRoot.MAP and kind.key is not None and kind.value is not None:
        return pa.map_(as_pypaimon(kind.key), pa.field("value", as_pypaimon(kind.value), kind.value.nullable))
    if kind.root is TypeRoot.ROW:
        return pa.struct([pa.field(f.name, as_pypaimon(f.type), f.type.nullable) for f in kind.fields])
    return to_arrow(kind)


def for_pypaimon(table: pa.Table, types: Mapping[str, DataType]) -> pa.Table:
    """The rows in pypaimon's Arrow types."""
    return table.cast(pa.schema([pa.field(name, as_pypaimon(kind), kind.nullable) for name, kind in types.items()]))


@pytest.mark.pypaimon
@pytest.mark.parametrize("file_format", one_in(3, ["parquet", "orc", "avro"]))
@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
def test_every_type_goes_to_pypaimon_and_back(
    tmp_path: Path, pypaimon: PyPaimon, file_format: str, keyed: bool
) -> None:
    kinds = [kind for kind in [*SCALARS, *NESTED] if kind != MULTISET]
    if file_format == "avro":
        kinds = [kind for kind in kinds if is_written_to_avro(kind)]
    types = {"id": parse("INT NOT NULL"), **{f"c{i}": parse(kind) for i, kind in enumerate(kinds)}}
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1" if keyed else "-1", "file.format": file_format}
    fields = [DataField(0, name, kind) for name, kind in types.items()]
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["id"] if keyed else [], options=options))
    limits = Limits.ORC if file_format == "orc" else Limits.WIDE
    ours, theirs = rows_at_the_edges(types, 0, limits=limits), rows_at_the_edges(types, 1000, limits=limits)
    table.write(table_of(ours, types))
    same(pypaimon.read("db.t"), ours, types)
    pypaimon.write("db.t", for_pypaimon(table_of(theirs, types), types))
    same(table.to_arrow(), [*ours, *theirs], types)
    table.compact(full=True)
    same(table.to_arrow(), [*ours, *theirs], types)
    same(pypaimon.read("db.t"), [*ours, *theirs], types)


@pytest.mark.pypaimon
@pytest.mark.parametrize("kind", REFUSED, ids=json.dumps)
def test_what_pypaimon_refuses(tmp_path: Path, pypaimon: PyPaimon, kind: Any) -> None:
    file_format = "parquet" if kind == MULTISET else "avro"
    types = {"id": parse("INT NOT NULL"), "c": parse(kind)}
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = [DataField(0, name, kind) for name, kind in types.items()]
    table = catalog.create_table("db.t", Schema(fields, options={"bucket": "-1", "file.format": file_format}))
    rows = rows_at_the_edges(types, 0, limits=Limits.WIDE)
    table.write(table_of(rows, types))
    if kind == MULTISET:
        with pytest.raises(AssertionError, match="Unsupported data type: MULTISET"):
            pypaimon.read("db.t")
    else:
        same(pypaimon.read("db.t"), rows, types)
    with pytest.raises(AssertionError, match=r"Unsupported|do not match"):
        pypaimon.write(
            "db.t", table_of(rows, types) if kind == MULTISET else for_pypaimon(table_of(rows, types), types)
        )
    same(table.to_arrow(), rows, types)


def same(found: pa.Table, expected: list[dict[str, Any]], types: Mapping[str, DataType]) -> None:
    """The rows of a peer or of Dredge, in any order."""
    read, wanted = canonical(rows_of_arrow(found, types), types), canonical(expected, types)
    assert read == wanted, difference(read, wanted)
