"""`commit.discard-duplicate-files`: an append leaves out the files that the table has already."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import CommitConflict

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.mark.parametrize("keys", [["k"], []])
@pytest.mark.parametrize("discards", ["true", "false"])
def test_a_second_append_of_the_same_files_adds_only_the_others(tmp_path: Path, keys: list[str], discards: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1" if keys else "-1", "commit.discard-duplicate-files": discards}
    table = catalog.create_table("db.t", Schema(FIELDS, keys, [], options))

    def messages(key: int) -> list[object]:
        with table.refresh().new_write() as writer:
            writer.write(pa.table({"k": [key], "v": [key]}, schema=FIELDS))
            return list(writer.prepare_commit())

    first, second = messages(1), messages(2)
    table.new_commit().commit(first)
    if discards == "false":
        with pytest.raises(CommitConflict):
            table.refresh().new_commit().commit([*first, *second])
        return
    table.refresh().new_commit().commit([*first, *second])
    read = table.refresh().to_arrow().sort_by("k")
    assert read.to_pydict() == {"k": [1, 2], "v": [1, 2]}
    table.refresh().new_commit().commit(first)
    assert table.refresh().to_arrow().num_rows == 2
