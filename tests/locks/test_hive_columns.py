"""Hive's types of Paimon's types."""

from __future__ import annotations

import pytest

from lsm_core.errors import UnsupportedFeature
from lsm_core.locks.hive_columns import hive_type
from lsm_core.types import parse


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "tinyint"),
        ("SMALLINT", "smallint"),
        ("INT NOT NULL", "int"),
        ("BIGINT", "bigint"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("DECIMAL(20, 3)", "decimal(20,3)"),
        ("CHAR(255)", "char(255)"),
        ("CHAR(256)", "string"),
        ("VARCHAR(65535)", "varchar(65535)"),
        ("VARCHAR(65536)", "string"),
        ("STRING", "string"),
        ("BINARY(3)", "binary"),
        ("BYTES", "binary"),
        ("DATE", "date"),
        ("TIME(3)", "string"),
        ("TIMESTAMP(9)", "timestamp"),
        ("ARRAY<INT>", "array<int>"),
        ("MULTISET<STRING>", "map<string,int>"),
        ("MAP<STRING, ARRAY<DATE>>", "map<string,array<date>>"),
        ("ROW<a INT, b ROW<c DOUBLE>>", "struct<a:int,b:struct<c:double>>"),
        ("VARIANT", "struct<value:binary,metadata:binary>"),
    ],
)
def test_types_have_the_names_that_java_gives_them(paimon: str, hive: str) -> None:
    assert hive_type(parse(paimon), has_local_timestamps=False) == hive


def test_a_timestamp_with_local_time_zone_depends_on_the_version() -> None:
    kind = parse("ARRAY<TIMESTAMP(6) WITH LOCAL TIME ZONE>")
    assert hive_type(kind, has_local_timestamps=False) == "array<timestamp>"
    assert hive_type(kind, has_local_timestamps=True) == "array<timestamp with local time zone>"


def test_a_type_that_hive_does_not_have_is_refused_by_column() -> None:
    with pytest.raises(UnsupportedFeature, match="column 'place' of type GEOMETRY"):
        hive_type(parse("GEOMETRY(4326)"), has_local_timestamps=True, column="place")
