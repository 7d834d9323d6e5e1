"""Incoming rows for columns of type VARIANT: structs of two binary fields, in either order, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import InvalidData, InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.types import DataType, TypeRoot
from lsm_core.types.arrow import find_misfit, to_arrow

ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
"""The number 1."""


def made(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    columns = [("k", "BIGINT NOT NULL"), ("v", "VARIANT"), ("l", "ARRAY<VARIANT>")]
    return catalog.create_table("db.t", Schema(columns, ["k"], [], {"bucket": "1", **options}))


def test_fields_are_matched_by_name(tmp_path: Path) -> None:
    table = made(tmp_path)
    swapped = pa.struct([("metadata", pa.large_binary()), ("value", pa.binary())])
    values = pa.array([ONE, None], swapped)
    table.write(pa.table({"k": [1, 2], "v": values, "l": pa.array([[ONE, None], None], pa.list_(swapped))}))
    table.write([{"k": 3, "v": ONE}])
    table.write(pa.table({"k": [4], "v": pa.array([None], pa.string())}))  # nulls of any type
    table.delete("k = 4")
    assert table.to_arrow().to_pylist() == [
        {"k": 1, "v": ONE, "l": [ONE, None]},
        {"k": 2, "v": None, "l": None},
        {"k": 3, "v": ONE, "l": None},
    ]
    table.compact(full=True)
    assert table.to_arrow(columns=["v"]).column("v").to_pylist() == [ONE, None, ONE]
    table.write(table.to_arrow())  # what was read can be written
    assert table.to_arrow().num_rows == 3


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (pa.array(['{"a":1}']), "row 0 .*does not fit VARIANT: a VARIANT is a struct of .*parse_json"),
        (pa.array([{**ONE, "typed_value": 1}]), "a VARIANT is a struct of the binary fields value and metadata"),
        (pa.array([{"value": b"\x0c\x01"}]), "a VARIANT is a struct"),
        (
            pa.array([{**ONE, "metadata": b"\x02\x00\x00"}]),
            r"row 0 \(from 0\).* no variant in Parquet's binary encoding",
        ),
        (pa.array([{**ONE, "metadata": b""}]), "no variant"),
        (pa.array([{**ONE, "value": b""}]), "no variant"),
        (
            pa.array([{**ONE, "value": None}], pa.struct([("value", pa.binary()), ("metadata", pa.binary())])),
            "no variant",
        ),
    ],
)
def test_other_values_are_refused_by_name_and_row(tmp_path: Path, values: pa.Array, part: str) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidData, match=part) as error:
        table.write(pa.table({"k": [1], "v": values}))
    assert "column 'v'" in str(error.value)
    assert table.latest_snapshot() is None


def test_the_row_of_a_bad_value_inside_of_a_list_is_named(tmp_path: Path) -> None:
    kind = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.VARIANT))
    bad = {**ONE, "metadata": b"\x00"}
    misfit = find_misfit(pa.array([None, [ONE], [None, ONE, bad]], to_arrow(kind)), kind)
    assert misfit is not None and (misfit.row, misfit.path, misfit.value) == (2, "[]", bad)
    assert find_misfit(pa.array([None, [ONE, None]], to_arrow(kind)), kind) is None


@pytest.mark.parametrize(
    "options", [{"file.format": "orc"}, {"file.format": "avro"}, {"changelog-file.format": "avro"}]
)
def test_only_parquet_files_hold_variants(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedFeature, match=r"type VARIANT in files of format '(orc|avro)'"):
        made(tmp_path, **options)


@pytest.mark.parametrize(
    ("keys", "options", "error"),
    [
        (["v"], {"bucket": "1"}, InvalidSchema),
        (["k"], {"bucket": "1", "sequence.field": "v"}, InvalidOption),
        (["k"], {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "max"}, Exception),
    ],
)
def test_variants_have_no_order(tmp_path: Path, keys: list[str], options: dict[str, str], error: Any) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    with pytest.raises(error, match="VARIANT"):
        catalog.create_table("db.t", Schema([("k", "BIGINT NOT NULL"), ("v", "VARIANT")], keys, [], options))
