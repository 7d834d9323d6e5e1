"""File formats that Dredge refuses: the losses of values that the errors name, and the conversion that they advise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import UnsupportedFeature

Java = Callable[..., dict[str, Any]]
FIELDS = [{"id": 0, "name": "v", "type": "STRING"}]


def _create(java: Java, file_format: str) -> None:
    options = {"bucket": "-1", "file.format": file_format, "file.compression": "none"}
    java("create", schema={"fields": FIELDS, "options": {**options, "compaction.min.file-num": "2"}})


def _values(java: Java) -> list[Any]:
    return [row["v"] for row in java("read")["rows"]]


@pytest.mark.paimon_java
def test_csv_files_lose_values_in_java(tmp_path: Path, java: Java) -> None:
    _create(java, "csv")
    java("write", rows=[{"v": value} for value in ("a", "", None, "x\ny")], compact="none")
    values = _values(java)
    assert values != ["a", "", None, "x\ny"]
    assert "" not in values
    with pytest.raises(UnsupportedFeature, match="Java reads empty texts as null"):
        Catalog(str(tmp_path)).table("db.t").to_arrow()


@pytest.mark.paimon_java
def test_json_tables_are_read_after_the_conversion_by_paimon(tmp_path: Path, java: Java) -> None:
    _create(java, "json")
    for value in ("a", "b"):
        java("write", rows=[{"v": value}], compact="none")
    with pytest.raises(UnsupportedFeature, match=r"set 'file\.format' = 'parquet' and compact"):
        Catalog(str(tmp_path)).table("db.t").to_arrow()
    java("alter", changes=[{"change": "set_option", "key": "file.format", "value": "parquet"}])
    java("compact", full=True)
    assert sorted(Catalog(str(tmp_path)).table("db.t").to_arrow().column("v").to_pylist()) == ["a", "b"]
