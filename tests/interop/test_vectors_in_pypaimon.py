"""pypaimon reads tables whose rows Dredge marked: append tables and primary-key tables, v1 and bitmap64; merged on read as here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.options.table_options import PaimonVersion
from tests.support.peers import PyPaimon, java_paimon
from tests.support.samples import one_in

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("wide", one_in(2, ["false", "true"], 1), ids=["v1", "bitmap64"])
def test_pypaimon_reads_what_is_not_marked(tmp_path: Path, pypaimon: PyPaimon, keyed: bool, wide: str) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": wide,
        **({"bucket": "1"} if keyed else {}),
    }
    table = catalog.create_table("db.t", Schema(COLUMNS, ["k"] if keyed else [], [], options))

    def rows(keys: range, value: int) -> pa.Table:
        return pa.table([list(keys), [value * 1_000_003 + key * 7919 % 1_000_003 for key in keys]], schema=COLUMNS)

    table.write(rows(range(3000), 0))
    if keyed:
        table.compact(full=True)
        table.write(rows(range(100, 200), 1))
        table.compact()
    else:
        table.delete([("k", ">=", 100), ("k", "<", 200)])
    mine = table.to_arrow().sort_by("k")
    assert mine.num_rows == (3000 if keyed else 2900)
    if wide == "true":  # its own limit: it knows v1
        with pytest.raises(AssertionError, match="Invalid magic number"):
            pypaimon.read("db.t")
        return
    theirs = pypaimon.read("db.t").select(["k", "v"]).sort_by("k")
    assert theirs.to_pylist() == mine.to_pylist()


@pytest.mark.paimon_java
def test_level_0_merged_on_read_is_what_pypaimon_shows_and_java_1_4_passes_over(
    tmp_path: Path, pypaimon: PyPaimon, java: Callable[..., dict[str, Any]]
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true", "bucket": "1"}
    table = catalog.create_table("db.t", Schema(COLUMNS, ["k"], [], options))
    table.write(pa.table([list(range(3000)), [k * 7919 % 1_000_003 for k in range(3000)]], schema=COLUMNS))
    table.compact(full=True)
    table.write(pa.table([[10, 11, 12], [1, 2, 3]], schema=COLUMNS))
    table.compact()
    compacted = table.to_arrow().sort_by("k").to_pylist()
    assert [row["v"] for row in compacted[10:13]] == [1, 2, 3]
    java("write", rows=[{"k": 12, "v": 9}, {"_kind": "-D", "k": 10}, {"k": 4000, "v": 9}], compact="none")
    mine = table.to_arrow().sort_by("k").to_pylist()
    assert (len(mine), mine[11]["v"], mine[-1]["k"]) == (3000, 9, 4000)
    assert pypaimon.read("db.t").select(["k", "v"]).sort_by("k").to_pylist() == mine
    # Java 1.4 does not know the option
    shown = [{"k": row["k"], "v": row["v"]} for row in java("read")["rows"]]
    knows = java_paimon().at_least(PaimonVersion.V2_0)
    assert sorted(shown, key=lambda row: row["k"]) == (mine if knows else compacted)
