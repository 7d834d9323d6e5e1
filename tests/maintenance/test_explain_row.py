"""Where a row comes from: the story's answer is what a read gives, and every column names the versions that hold its value."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidFilter, SnapshotNotFound, UnsupportedFeature
from lsm_core.maintenance.row_explanation.column_sources import Versions, supplies
from lsm_core.merge import merge_function
from lsm_core.merge.functions import PickAggregate
from lsm_core.merge.rows import Piece, Rows, merge_order
from lsm_core.merge.window import Merger
from tests.maintenance.tables import NOW, catalog, keyed, rows
from tests.merge.random_histories import random_history, to_batch
from tests.support import data
from tests.support.samples import one_in


def table(tmp_path: Path, columns: dict[str, pa.DataType], **options: str) -> Table:
    """Primary key k and these columns; options with _ for - and __ for . in their names."""
    fields = [pa.field("k", pa.int64(), nullable=False), *(pa.field(n, t) for n, t in columns.items())]
    given = {"bucket": "1", **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    return catalog(tmp_path).create_table("db.t", Schema(pa.schema(fields), ["k"], [], given))


def write(made: Table, *given: dict[str, Any], kinds: list[str] | None = None) -> None:
    """One commit of these rows."""
    schema = made.schema.arrow_schema
    columns = [pa.array([row.get(name) for row in given], schema.field(name).type) for name in schema.names]
    made.write(pa.Table.from_arrays(columns, schema=schema), row_kinds=None if kinds is None else pa.array(kinds))


def read(made: Table, k: int) -> dict[str, Any] | None:
    """What a read says about a key."""
    found = made.to_arrow(filter=[("k", "=", k)]).to_pylist()
    return found[0] if found else None


def test_the_newest_version_supplies_every_column_of_a_deduplicated_row(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    made.write(rows([1, 2], v=10))
    made.compact(full=True)
    made.write(rows([1], v=20))
    story = made.explain_row({"k": 1})
    assert story.answer == read(made, 1) == {"k": 1, "v": 21, "s": "s1"}
    assert [(v.number, v.level, v.kind, v.values["v"]) for v in story.versions] == [(1, 0, "+I", 21), (2, 5, "+I", 11)]
    assert story.column("v").versions == (1,) and story.column("v").roles[2] == "replaced by a newer version"
    assert story.exists and "2 versions in 2 files" in story.summary
    files = {v.file: v for v in story.versions}
    assert set(files) == set(made.store and _live(made))
    older = made.explain_row({"k": 1}, snapshot_id=2)
    assert older.answer == {"k": 1, "v": 11, "s": "s1"} and older.column("v").why == "the only version"


def _live(made: Table) -> list[str]:
    return [f.file_name for split in made.plan_scan() for f in split.files]


def test_a_deleted_row_and_a_missing_one_have_no_answer_and_say_why(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    assert "nothing was committed" in made.explain_row({"k": 1}).summary
    made.write(rows([1, 3]))
    made.write(rows([1]), row_kinds=pa.array(["-D"]))
    story = made.explain_row({"k": 1})
    assert story.answer is None is read(made, 1)
    assert [v.kind for v in story.versions] == ["-D", "+I"] and "deleted" in story.summary
    for missing in (2, 99):
        story = made.explain_row({"k": missing})
        assert (story.exists, story.answer, story.versions, story.columns) == (False, None, (), ())
        assert "no version" in story.summary and story.files == (1 if missing == 2 else 0)


def test_keys_that_do_not_fit_are_named(tmp_path: Path) -> None:
    made = keyed(tmp_path, partitioned=True)
    made.write(rows([1], dt="a"))
    with pytest.raises(ColumnNotFound, match="'nope'"):
        made.explain_row({"nope": 1})
    for key in ({"k": 1}, {"k": 1, "dt": "a", "v": 1}, {}):
        with pytest.raises(InvalidFilter, match="exactly the columns dt, k"):
            made.explain_row(key)
    with pytest.raises(InvalidFilter, match="'many' is no int64 for key column 'k'"):
        made.explain_row({"k": "many", "dt": "a"})
    with pytest.raises(InvalidFilter, match="cannot be null"):
        made.explain_row({"k": None, "dt": "a"})
    with pytest.raises(InvalidFilter, match="mapping of column names to values, not 7"):
        made.explain_row(7)  # type: ignore[arg-type]
    with pytest.raises(SnapshotNotFound):
        made.explain_row({"k": 1, "dt": "a"}, snapshot_id=9)
    assert made.explain_row({"k": "1", "dt": "a"}).exists
    other = Catalog(tmp_path / "wh")
    append = other.create_table("db.a", Schema(pa.schema([("v", pa.int64())])))
    with pytest.raises(UnsupportedFeature, match="without a primary key"):
        append.explain_row({"v": 1})


def test_only_files_that_may_hold_the_key_are_opened(tmp_path: Path) -> None:
    made = keyed(tmp_path, partitioned=True)
    for start in (0, 100, 200):
        made.write(rows(range(start, start + 50), dt="a"))
    made.write(rows(range(300), dt="b"))
    story = made.explain_row({"k": 120, "dt": "a"})
    assert (story.files, len(story.versions)) == (1, 1)
    assert story.versions[0].position == 20 and story.versions[0].values["dt"] == "a"


def test_partial_update_names_the_last_value_that_is_not_null(tmp_path: Path) -> None:
    made = table(tmp_path, {"a": pa.int64(), "b": pa.string()}, merge_engine="partial-update")
    write(made, {"k": 1, "a": 1, "b": "x"})
    write(made, {"k": 1, "a": 2})
    write(made, {"k": 1})
    story = made.explain_row({"k": 1})
    assert story.answer == read(made, 1) == {"k": 1, "a": 2, "b": "x"}
    assert (story.column("a").versions, story.column("b").versions) == ((2,), (3,))
    assert story.column("a").why == "the last value that is not null"
    assert story.column("a").roles == {1: "null: leaves the column as it was", 2: story.column("a").why, 3: "replaced by a newer value"}  # fmt: skip


def test_sequence_groups_tell_accepted_late_and_passed_over(tmp_path: Path) -> None:
    options = {
        "merge_engine": "partial-update",
        "fields__g__sequence_group": "a,n",
        "fields__n__aggregate_function": "sum",
    }
    made = table(tmp_path, {"g": pa.int64(), "a": pa.int64(), "n": pa.int64(), "z": pa.int64()}, **options)
    write(made, {"k": 1, "g": 5, "a": 50, "n": 1, "z": 1})
    write(made, {"k": 1, "g": 3, "a": 30, "n": 10, "z": 2})
    write(made, {"k": 1, "a": 99, "n": 100, "z": 3})
    story = made.explain_row({"k": 1})
    assert story.answer == read(made, 1) == {"k": 1, "g": 5, "a": 50, "n": 11, "z": 3}
    a = story.column("a")
    assert a.versions == (3,) and a.why == "the newest by sequence group g"
    assert "late" in a.roles[2] and "null" in a.roles[1]
    assert story.column("n").why == "sum of 2 values, 1 of them late" and story.column("n").versions == (3, 2)
    assert story.column("z").versions == (1,)


def test_aggregates_tell_their_inputs_and_what_a_delete_reset(tmp_path: Path) -> None:
    options = {
        "merge_engine": "aggregation",
        "fields__n__aggregate_function": "sum",
        "fields__m__aggregate_function": "max",
        "aggregation__remove_record_on_delete": "true",
    }
    made = table(tmp_path, {"n": pa.int64(), "m": pa.int64()}, **options)
    write(made, {"k": 1, "n": 1, "m": 9})
    write(made, {"k": 1, "n": 2, "m": 3}, kinds=["-D"])
    write(made, {"k": 1, "n": 10})
    write(made, {"k": 1, "n": 20, "m": 1})
    story = made.explain_row({"k": 1})
    assert story.answer == read(made, 1) == {"k": 1, "n": 32, "m": 3}
    n, m = story.column("n"), story.column("m")
    assert n.versions == (3, 2, 1) and n.why == "sum of 3 values"
    assert n.roles[4] == "before the delete that reset the row" and n.roles[3] == "what the row began with"
    assert m.versions == (3,) and m.why == "max: what the row began with"


def test_first_row_shows_the_first_version_and_what_reads_do_not_see_yet(tmp_path: Path) -> None:
    made = table(tmp_path, {"a": pa.int64()}, merge_engine="first-row")
    write(made, {"k": 1, "a": 1})
    write(made, {"k": 1, "a": 2})
    story = made.explain_row({"k": 1})
    assert story.answer is None is read(made, 1) and "hidden from reads; no row" in story.summary
    assert [v.hidden is not None and "level 0" in v.hidden for v in story.versions] == [True, True]


def test_versions_in_deletion_vectors_are_shown_and_do_not_count(tmp_path: Path) -> None:
    data.unpack_golden("dv_pk", tmp_path)
    made = Catalog(tmp_path / "warehouse").table("db.t")
    key = made.primary_keys
    seen = {tuple(row[name] for name in key): row for row in made.to_arrow().to_pylist()}
    hidden = set()
    for snapshot in made.snapshots():
        for row in made.to_arrow(snapshot_id=snapshot.id).to_pylist()[::3]:
            values = {name: row[name] for name in key}
            story = made.explain_row(values)
            assert story.answer == seen.get(tuple(values.values()))
            hidden |= {version.hidden for version in story.versions}
    assert any(text and "deletion vector" in text for text in hidden)


@pytest.mark.parametrize("engine", one_in(2, ["deduplicate", "partial_update", "first_row"]))
def test_a_key_that_moved_between_partitions_has_the_row_of_the_newest(tmp_path: Path, engine: str) -> None:
    data.unpack_golden(f"cross_partition_{engine}", tmp_path)
    made = Catalog(tmp_path / "warehouse").table("db.t")
    moved = 0
    for snapshot in made.snapshots():
        seen = {row["k"]: row for row in made.to_arrow(snapshot_id=snapshot.id).to_pylist()}
        for key in {row["k"] for item in made.snapshots() for row in made.to_arrow(snapshot_id=item.id).to_pylist()}:
            story = made.explain_row({"k": key}, snapshot.id)
            assert story.answer == seen.get(key), story
            partitions = [version.partition for version in story.versions]
            assert [v.number for v in story.versions] == list(range(1, len(partitions) + 1))
            if len(set(partitions)) > 1:
                moved += 1
                assert partitions == sorted(partitions, key=partitions.index)  # each told in one piece
                assert f"of {len(set(partitions))} partitions" in story.summary
            if story.answer is not None:
                assert partitions[0] == f"{made.partition_keys[0]}={story.answer[made.partition_keys[0]]}"
                own = {version.number for version in story.versions if version.partition == partitions[0]}
                assert all(set(column.versions) <= own for column in story.columns)
    assert moved or engine != "deduplicate"


def test_expired_versions_are_marked(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    made.write(pa.table({"k": [1, 2], "v": [NOW // 1000 - 7200, NOW // 1000], "s": ["old", "new"]}))
    dated = made.copy({"record-level.expire-time": "1 h", "record-level.time-field": "v"})
    notes = [dated.explain_row({"k": k}).versions[0].note for k in (1, 2)]
    assert notes[0] is not None and "expired" in notes[0] and notes[1] is None


@pytest.mark.parametrize(
    ("engine", "looking"),
    one_in(
        4,  # each engine, each way to look keys up
        product(
            ("deduplicate", "partial-update", "aggregation"),
            ({}, {"changelog_producer": "lookup"}, {"deletion_vectors__enabled": "true"}),
        ),
    ),
)
def test_the_answer_is_what_a_read_gives_after_any_writes_and_compactions(
    tmp_path: Path, engine: str, looking: dict[str, str]
) -> None:
    options = {"merge_engine": engine, "num_sorted_run__compaction_trigger": "3", **looking}
    if engine == "partial-update":
        options |= {"fields__g__sequence_group": "a", "fields__a__aggregate_function": "listagg"}
    if engine == "aggregation":
        options |= {"fields__g__aggregate_function": "sum", "fields__a__aggregate_function": "listagg"}
    made = table(tmp_path, {"g": pa.int64(), "a": pa.string(), "z": pa.int64()}, **options)
    chance = random.Random(3)
    for step in range(9):
        keys = sorted(chance.sample(range(12), 5))
        write(made, *({"k": k, "g": chance.choice([1, 2, None]), "a": chance.choice(["x", "y", None]), "z": step} for k in keys))  # fmt: skip
        if step % 3 == 2:
            made.compact(full=step == 5)
        found = {row["k"]: row for row in made.to_arrow().to_pylist()}
        for k in range(step % 3, 12, 3):
            assert made.explain_row({"k": k}).answer == found.get(k)


@pytest.mark.parametrize("function", ["sum", "listagg"])
def test_where_compactions_look_keys_up_only_the_lowest_level_is_told_to_count(tmp_path: Path, function: str) -> None:
    """Compactions of such tables write what older levels say into the lower one, so nobody may count them again."""
    kind = pa.int64() if function == "sum" else pa.string()
    first, second, third, more = [1, 2, 4, 8] if function == "sum" else ["a", "b", "c", "d"]
    options = {"merge_engine": "aggregation", "fields__g__aggregate_function": function}
    made = table(tmp_path, {"g": kind}, num_sorted_run__compaction_trigger="2", num_levels="6", **options)
    chance = random.Random(1)
    others = ({"k": k, "g": chance.getrandbits(60)} for k in range(2, 4_000))
    write(
        made,
        {"k": 1, "g": first},
        *(version if function == "sum" else version | {"g": str(version["g"])} for version in others),
    )
    made.compact(full=True)
    write(made, {"k": 1, "g": second})
    write(made, {"k": 2, "g": more})
    made.compact()
    write(made, {"k": 1, "g": third})
    looking = made.copy({"changelog-producer": "lookup"})
    story = looking.explain_row({"k": 1})
    assert story.answer == read(looking, 1) == {"k": 1, "g": 6 if function == "sum" else "b,c"}
    assert [(version.level, version.hidden is None) for version in story.versions] == [(0, True), (4, True), (5, False)]
    assert "so the lower version includes this one" in str(story.versions[2].hidden)
    assert story.column("g").versions == (2, 1) and "1 of them hidden" in story.summary
    assert made.explain_row({"k": 1}).answer == read(made, 1) == {"k": 1, "g": 7 if function == "sum" else "a,b,c"}


def test_stories_of_random_histories_name_versions_that_hold_the_value() -> None:
    assert sum(_check(seed) for seed in range(1, 15)) > 400


@pytest.mark.soak
def test_stories_of_many_random_histories_name_versions_that_hold_the_value() -> None:
    assert sum(_check(seed) for seed in range(15, 401)) > 10_000


def _check(seed: int) -> int:
    """Every key of a random table: what a story says supplies a column holds the value of the merged row."""
    history = random_history(seed, keys=8)
    function = merge_function(history.schema, history.table.options, "db.t")
    columns = 0
    for key in sorted(history.keys):
        runs = [(to_batch(run, history.schema), run[0].level, run[0].age) for run in history.only({key}).runs if run]
        pieces = [Piece(batch, function.key_spec.keys(batch), level, age) for batch, level, age in runs]
        try:
            merged = Merger(function, function.key_spec).merge(pieces, open_end=False, sorted_runs=False)
        except DredgeError:
            continue
        if not merged:
            continue
        order = merge_order(Rows.of(pieces), function.key_spec, sorted_runs=False).order
        whole = pa.Table.from_batches([piece.batch for piece in pieces]).combine_chunks().to_batches()[0]
        batch = whole.take(pa.array(order))
        for name, supply in supplies(function, Versions(batch), list(history.schema.field_names)):
            columns += 1
            value, held = merged[0].column(name)[0], [batch.column(name)[place] for place in supply.places]
            where = f"seed {seed}, {function.name}, {name}: {supply.why}\n{batch.to_pylist()}\n{history.table.options}"
            aggregate = getattr(function, "functions", {}).get(name)
            if len(supply.places) == 1 and (aggregate is None or isinstance(aggregate, PickAggregate)):
                assert repr(held[0]) == repr(value), where
            if not supply.places:
                assert not value.is_valid, where
    return columns
