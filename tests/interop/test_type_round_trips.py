"""Every type from Dredge to Java and back, at its extremes: in both kinds of table, in all formats, before and after compaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.format.schema import DataField
from lsm_core.types import DataType, parse, to_json
from tests.interop.values import Limits, Value, canonical, difference, extremes, rows_of_arrow, table_of
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]

ROW = {
    "type": "ROW",
    "fields": [
        {"id": 0, "name": "a", "type": "INT"},
        {"id": 1, "name": "b", "type": "STRING"},
        {"id": 2, "name": "c", "type": "DECIMAL(20, 3)"},
        {"id": 3, "name": "d", "type": "TIMESTAMP(3)"},
    ],
}
SCALARS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(18, 18)", "DECIMAL(19, 0)",
    "DECIMAL(38, 10)", "CHAR(5)", "VARCHAR(7)", "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)", "TIME(3)",
    "TIMESTAMP(0)", "TIMESTAMP(1)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
    "TIMESTAMP(0) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "TIMESTAMP(9) WITH LOCAL TIME ZONE",
]  # fmt: skip
NESTED: list[Any] = [
    {"type": "ARRAY", "element": "INT"},
    {"type": "ARRAY", "element": "STRING NOT NULL"},
    {"type": "ARRAY", "element": {"type": "ARRAY", "element": "DECIMAL(25, 5)"}},
    {"type": "ARRAY", "element": ROW},
    {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"},
    {"type": "MAP", "key": "INT NOT NULL", "value": {"type": "ARRAY", "element": "DATE"}},
    {"type": "MAP", "key": "STRING NOT NULL", "value": ROW},
    {"type": "MULTISET", "element": "STRING NOT NULL"},
    ROW,
    {"type": "ROW", "fields": [{"id": 0, "name": "r", "type": ROW}, {"id": 1, "name": "l", "type": {"type": "ARRAY", "element": "DOUBLE"}}]},
    {"type": "ARRAY", "element": "TIMESTAMP(6)"},
    {"type": "ARRAY", "element": "TIMESTAMP(9)"},
    {"type": "ARRAY", "element": "BYTES"},
]  # fmt: skip
KEYS = [
    *(kind for kind in SCALARS if kind not in ("FLOAT", "DOUBLE", "BINARY(4)", "VARBINARY(9)", "BYTES")),
    "FLOAT", "DOUBLE", "BINARY(4)", "VARBINARY(9)", "BYTES",
]  # fmt: skip


def types_for(file_format: str) -> dict[str, DataType]:
    """One column of every type that ``file_format`` can hold."""
    kinds = [*SCALARS, *NESTED]
    if file_format == "avro":  # Java's writer of Avro refuses them
        kinds = [kind for kind in kinds if not _is_beyond_avro(kind)]
    return {"id": parse("INT NOT NULL"), **{f"c{i}": parse(kind) for i, kind in enumerate(kinds)}}


def _is_beyond_avro(kind: Any) -> bool:
    inner = kind if isinstance(kind, str) else kind.get("element")
    return isinstance(inner, str) and inner.startswith("TIMESTAMP(9)")


def rows_at_the_edges(types: Mapping[str, DataType], first: int, *, limits: Limits) -> list[dict[str, Value]]:
    """As many rows as the longest list of extremes, ids from ``first``; every column also has its null."""
    each = {name: [*extremes(kind, limits=limits), None] for name, kind in types.items() if name != "id"}
    count = max(len(values) for values in each.values())
    return [{"id": first + i, **{name: v[(i + first) % len(v)] for name, v in each.items()}} for i in range(count)]


class Twice:
    """One table, seen by both."""

    def __init__(self, warehouse: Path, java: Java, types: Mapping[str, DataType]) -> None:
        self.catalog, self.java, self.types = Catalog(str(warehouse)), java, types

    def create(self, keys: Sequence[str], options: Mapping[str, str], *, by_java: bool) -> None:
        """Made by either."""
        self.catalog.create_database("db", ignore_if_exists=True)
        if by_java:
            fields = [{"name": name, "type": to_json(kind)} for name, kind in self.types.items()]
            self.java("create", schema={"fields": fields, "primaryKeys": list(keys), "options": dict(options)})
        else:
            given = [DataField(0, name, kind) for name, kind in self.types.items()]
            self.catalog.create_table("db.t", Schema(given, primary_keys=keys, options=options))

    @property
    def table(self) -> Table:
        """Opened anew."""
        return self.catalog.table("db.t")

    def agree(self, expected: Sequence[Mapping[str, Value]]) -> None:
        """Both read ``expected``."""
        wanted = canonical(expected, self.types)
        ours = canonical(rows_of_arrow(self.table.to_arrow(), self.types), self.types)
        assert ours == wanted, "Dredge reads " + difference(ours, wanted)
        theirs = canonical(self.java("read")["rows"], self.types)
        assert theirs == wanted, "Java reads " + difference(theirs, wanted)

    def write(self, rows: Sequence[Mapping[str, Value]]) -> None:
        """By Dredge."""
        self.table.write(table_of(rows, self.types))

    def write_java(self, rows: Sequence[Mapping[str, Value]]) -> None:
        """By Java, without compaction."""
        self.java("write", rows=[{"_kind": "+I", **row} for row in rows], compact="none")


@pytest.mark.paimon_java
@pytest.mark.parametrize(("file_format", "keyed"), one_in(4, product(("parquet", "avro", "orc"), (True, False))))
def test_every_type_goes_to_java_and_back(tmp_path: Path, java: Java, file_format: str, keyed: bool) -> None:
    types = types_for(file_format)
    both = Twice(tmp_path, java, types)
    options = {"bucket": "1" if keyed else "-1", "file.format": file_format}
    both.create(["id"] if keyed else [], options, by_java=not keyed)
    limits = Limits.ORC if file_format == "orc" else Limits.WIDE
    ours, theirs = rows_at_the_edges(types, 0, limits=limits), rows_at_the_edges(types, 1000, limits=limits)
    both.write(ours)
    both.agree(ours)
    both.write_java(theirs)
    both.agree([*ours, *theirs])
    newer = [{**row, "id": i} for i, row in enumerate(rows_at_the_edges(types, 7, limits=limits)[:20])]
    both.write(newer)
    expected = [*newer, *ours[len(newer) :], *theirs] if keyed else [*ours, *theirs, *newer]
    both.agree(expected)
    both.table.compact(full=True)
    both.agree(expected)
    java("compact", full=True)
    both.agree(expected)


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(4, KEYS))
def test_every_type_of_key_is_found_again(tmp_path: Path, java: Java, kind: str) -> None:
    types = {"k": parse(f"{kind} NOT NULL"), "v": parse("INT")}
    both = Twice(tmp_path, java, types)
    both.create(["k"], {"bucket": "3"}, by_java=True)
    keys = list({repr(key): key for key in extremes(types["k"])}.values())
    both.write([{"k": key, "v": i} for i, key in enumerate(keys)])
    both.agree([{"k": key, "v": i} for i, key in enumerate(keys)])
    changed = [{"k": key, "v": -i} for i, key in enumerate(keys) if i % 2]
    both.write_java(changed)
    expected = [{"k": key, "v": -i if i % 2 else i} for i, key in enumerate(keys)]
    both.agree(expected)
    both.table.compact(full=True)
    both.agree(expected)
    both.write(changed[:1])
    java("compact", full=True)
    both.agree(expected)


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    "kind", ["TIMESTAMP(9)", {"type": "ARRAY", "element": "TIMESTAMP(9)"}], ids=["column", "element"]
)
def test_what_avro_cannot_hold_is_refused_by_both(tmp_path: Path, java: Java, kind: Any) -> None:
    both = Twice(tmp_path, java, {"id": parse("INT NOT NULL"), "c": parse(kind)})
    for by_java in (True, False):
        with pytest.raises(Exception, match="Avro"):
            both.create([], {"bucket": "-1", "file.format": "avro"}, by_java=by_java)
