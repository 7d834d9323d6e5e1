"""`deletion-vectors.merge-on-read`: readers with the option see level 0 merged with what is above it, where vectors mark superseded rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.checks.backlog import hides_level0
from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import indexes, snapshots
from lsm_core.types import RowKind
from tests.support.samples import one_in

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
OPTION = "deletion-vectors.merge-on-read"
ENGINES = {
    "deduplicate": {},
    "lookup": {"changelog-producer": "lookup"},
    "sum": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "sequence": {"sequence.field": "v"},
}


def create(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    chosen = {"bucket": "1", "deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "3", **options}
    return catalog.create_table("db.t", Schema(COLUMNS, ["k"], [], chosen))


def write(table: Table, keys: Sequence[int], value: int, kind: RowKind = RowKind.INSERT) -> None:
    rows = pa.table([list(keys), [value + key * 7919 % 1_000_003 for key in keys]], schema=COLUMNS)
    table.write(rows, row_kinds=pa.array([int(kind)] * len(keys), pa.int8()))


def rows_of(table: Table) -> dict[int, int]:
    found = table.to_arrow().to_pylist()
    listed = {row["k"]: row["v"] for row in found}
    assert len(listed) == len(found), "a key came twice"
    return listed


def marks(table: Table) -> int:
    latest = snapshots.latest(table.store)
    assert latest is not None
    return sum(
        sum(indexes.deleted_rows(files).values()) for files in indexes.vector_files(table.store, latest).values()
    )


def test_narrow_row_groups_with_marks_are_one_batch(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, range(100_000), 1)
    table.compact(full=True)
    unmarked = [batch.num_rows for batch in table.to_batches()]
    write(table, range(5, 100_000, 2_000), 2)
    table.compact()
    assert marks(table) == 50
    batches = list(table.to_batches())
    assert sorted(batch.num_rows for batch in batches) == [50, 99_950]
    assert max(unmarked) < 99_950
    values = {row["k"]: row["v"] for batch in batches for row in batch.to_pylist() if row["k"] in (4, 5, 70_005)}
    assert values == {key: value + key * 7919 % 1_000_003 for key, value in ((4, 1), (5, 2), (70_005, 2))}


@pytest.mark.parametrize("engine", one_in(3, ENGINES))
def test_readers_with_the_option_see_every_write_at_once(tmp_path: Path, engine: str) -> None:
    table = create(tmp_path, **ENGINES[engine])
    merged = table.copy({OPTION: "true"})
    chance, model, number, most_marks, hidden = random.Random(engine), dict[int, int](), 0, 0, 0
    write(table, range(4000), 0)  # large enough that later compactions settle below it
    model.update({key: key * 7919 % 1_000_003 for key in range(4000)})
    assert rows_of(table) == {}
    assert rows_of(merged) == model
    table.compact(full=True)
    for _ in range(18):
        verb = chance.choice(["write", "write", "delete", "minor", "full"])
        keys = range(first := chance.randrange(80), first + chance.randrange(1, 40))
        number += 1_000_003
        if verb == "write" or (verb == "delete" and engine in ("partial-update", "sequence")):
            write(table, keys, number)
            for key in keys:
                value = number + key * 7919 % 1_000_003
                model[key] = model.get(key, 0) + value if engine == "sum" else value
        elif verb == "delete":
            write(table, keys, number, RowKind.DELETE)
            for key in keys:
                if engine == "sum":
                    model[key] = model.get(key, 0) - number - key * 7919 % 1_000_003
                else:
                    model.pop(key, None)
        else:
            table.compact(full=verb == "full")
        assert rows_of(merged) == model, verb
        most_marks = max(most_marks, marks(table))
        hidden += rows_of(table) != model
        # every way to ask
        some = merged.lookup(pa.table({"k": pa.array(range(0, 90, 7))}))
        assert dict(zip(*some.to_pydict().values(), strict=True)) == {
            k: model[k] for k in range(0, 90, 7) if k in model
        }
        least = sorted(model.values())[len(model) // 2]
        found = merged.to_arrow(filter=[("v", ">", least)]).to_pydict()
        assert dict(zip(*found.values(), strict=True)) == {k: v for k, v in model.items() if v > least}
        assert merged.to_arrow(limit=5).num_rows == 5
    assert most_marks, "nothing was marked"
    assert hidden, "nothing was hidden"


def test_changes_between_versions_and_stories_of_rows_are_those_of_the_reader(tmp_path: Path) -> None:
    table = create(tmp_path)
    merged = table.copy({OPTION: "true"})
    write(table, range(100), 0)
    table.compact(full=True)
    write(table, [3, 4], 5)
    write(table, [4], 9, RowKind.DELETE)
    latest = snapshots.latest_id(table.store)
    assert latest is not None
    assert table.incremental(latest - 2, latest, mode="diff").num_rows == 0
    changed = merged.incremental(latest - 2, latest, mode="diff").to_pylist()
    assert [tuple(row.values()) for row in changed] == [("+I", 3, 5 + 3 * 7919), ("-D", 4, 4 * 7919)]
    row = {"k": 3}
    assert table.explain_row(row).answer["v"] == 3 * 7919
    assert merged.explain_row(row).answer["v"] == 5 + 3 * 7919
    # a backlog is slow then, and no missing data
    assert table.health()[0].hidden_rows == 3
    assert merged.health()[0].hidden_rows == 0
    assert hides_level0(table.store.options)
    assert not hides_level0(merged.store.options)


def test_streams_are_what_they_were(tmp_path: Path) -> None:
    """A stream begins with all that was written, or with what a lookup has told of: the option is of batch reads."""
    for name, options in (("none", {}), ("lookup", {"changelog-producer": "lookup"})):
        table = create(tmp_path / name, **options)
        write(table, range(50), 0)
        table.compact()
        write(table, range(40, 60), 7)
        records = []
        for reader in (table, table.copy({OPTION: "true"})):
            stream, found = reader.new_stream_scan(), []
            while (batch := stream.next()) is not None:
                found += batch.to_arrow().to_pylist()
            records.append(found)
        assert records[0] == records[1]
        assert len(records[0]) == (60 if name == "none" else 50)


def test_compactions_of_a_table_with_the_option_go_on_marking(tmp_path: Path) -> None:
    table = create(tmp_path, **{OPTION: "true"})
    write(table, range(4000), 0)
    table.compact(full=True)
    write(table, range(10), 5)
    before = rows_of(table)
    table.compact()
    assert marks(table) == 10
    assert rows_of(table) == before
    assert rows_of(table.copy({OPTION: "false"})) == before
