"""Paimon's procedures by name: each does what the verb of the engine does, and a wrong call is answered by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import (
    DredgeError,
    InvalidFilter,
    InvalidOption,
    SnapshotNotFound,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.maintenance import CompactionReport
from lsm_core.sql.procedures import PROCEDURES, CallResult, ParameterKind, prepare_call

NOW = 1_700_000_000_000
FIELDS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)


class Warehouse:
    """A warehouse with the table db.t: partitions a and b, three commits, a bucket each."""

    def __init__(self, root: Path) -> None:
        self.catalog = Catalog(str(root), clock=FixedClock(NOW))
        self.catalog.create_database("db")
        self.make("db.t")

    def make(self, name: str, *, partitioned: bool = True) -> Table:
        keys = {"partition_keys": ["dt"]} if partitioned else {}
        table = self.catalog.create_table(
            name, Schema(FIELDS, primary_keys=["dt", "k"], options={"bucket": "1"}, **keys)
        )
        for value in range(3):
            table.write(pa.table({"dt": ["a", "b"], "k": [1, 2], "v": [value, value]}, FIELDS))
        return table

    @property
    def table(self) -> Table:
        return self.catalog.table("db.t")

    def call(self, arguments: str) -> CallResult:
        return prepare_call(self.catalog, f"CALL sys.{arguments}").apply()

    def runs(self) -> dict[str, int]:
        return {item.partition["dt"]: item.sorted_runs for item in self.table.health()}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def test_compact_is_full_unless_told_otherwise_and_of_the_partitions_chosen(warehouse: Warehouse) -> None:
    assert warehouse.call("compact(table => 'db.t', compact_strategy => 'minor')").reports
    assert warehouse.runs() == {"a": 3, "b": 3}  # three runs are few for a minor compaction
    warehouse.call("compact(table => 'db.t', where => \"dt > 'a'\")")
    assert warehouse.runs() == {"a": 3, "b": 1}
    warehouse.call("compact('db.t', 'dt=a;dt=z')")
    assert warehouse.runs() == {"a": 1, "b": 1}
    assert warehouse.table.to_arrow().num_rows == 2


def test_options_are_those_of_the_call_alone(warehouse: Warehouse) -> None:
    made = prepare_call(
        warehouse.catalog, "sys.compact(table => 'db.t', options => 'num-sorted-run.compaction-trigger=2')"
    ).plan()
    assert made.plans[0].options["num-sorted-run.compaction-trigger"] == "2"
    mapped = "sys.compact(table => 'db.t', options => map('num-sorted-run.compaction-trigger', 2), compact_strategy => 'minor')"
    assert len(prepare_call(warehouse.catalog, mapped).apply().plans[0].items) == 2
    assert "num-sorted-run.compaction-trigger" not in warehouse.table.options


def test_a_compaction_makes_a_commit_for_so_many_buckets(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidOption, match="'commit_every' cannot be 'x'; accepted: a whole number"):
        warehouse.call("compact(table => 'db.t', options => 'commit-every=x')")
    (report,) = warehouse.call("compact(table => 'db.t', options => 'commit-every=1,num-levels=6')").reports
    assert isinstance(report, CompactionReport) and report.commits == 2
    assert warehouse.runs() == {"a": 1, "b": 1}


def test_idle_partitions_alone(warehouse: Warehouse) -> None:
    late = Catalog(warehouse.catalog.root, clock=FixedClock(NOW + 10_000))
    late.table("db.t").write(pa.table({"dt": ["b"], "k": [2], "v": [9]}, FIELDS))
    made = prepare_call(late, "sys.compact(table => 'db.t', partition_idle_time => '10 s')").plan()
    assert [item.partition_text for item in made.plans[0].items] == ["dt=a"]


def test_every_table_of_a_database_and_one_that_fails_keeps_no_other(warehouse: Warehouse) -> None:
    warehouse.make("db.u")
    warehouse.make("db.other")
    made = prepare_call(warehouse.catalog, "CALL sys.compact_database('d.', 'db[.][tu]', 'db[.]u')").plan()
    assert [plan.table for plan in made.plans] == ["db.t"]
    for path in Path(warehouse.catalog.table("db.other").store.root).glob("manifest/manifest-*"):
        path.write_bytes(b"x")
    with pytest.raises(DredgeError, match=r"sys\.compact_database: 1 of 3 steps failed: db\.other: "):
        warehouse.call("compact_database()")
    assert warehouse.runs() == {"a": 1, "b": 1}


def test_a_database_in_the_mode_and_with_the_arguments_of_paimon(warehouse: Warehouse) -> None:
    worse = warehouse.make("db.worse")
    for value in range(6):
        worse.write(pa.table({"dt": ["a"], "k": [1], "v": [value]}, FIELDS))
    combined = prepare_call(
        warehouse.catalog, "sys.compact_database(mode => 'combined', compact_strategy => 'minor')"
    ).plan()
    assert [plan.table for plan in combined.plans] == ["db.worse", "db.t"] and not combined.plans[0].arguments["full"]
    divided = "sys.compact_database(mode => 'divided', partition_idle_time => '1 h', table_options => 'num-levels=6')"
    plans = prepare_call(warehouse.catalog, divided).plan().plans
    assert [plan.table for plan in plans] == ["db.t", "db.worse"] and not plans[0].items
    assert plans[0].declined[0].text.endswith("without new data for 1h") and plans[0].options["num-levels"] == "6"


def test_tags(warehouse: Warehouse) -> None:
    warehouse.call("create_tag('db.t', 'one', 1, '7 d')")
    assert warehouse.table.tags()["one"].time_retained_ms == 7 * 86_400_000
    warehouse.call("replace_tag('db.t', 'one', 2)")
    warehouse.call("create_tag_from_timestamp('db.t', 'timed', 1)")
    warehouse.call("rename_tag('db.t', 'one', 'two')")
    assert {name: tag.snapshot.id for name, tag in warehouse.table.tags().items()} == {"timed": 1, "two": 2}
    for wrong in ("replace_tag('db.t', 'none', 2)", f"create_tag_from_timestamp('db.t', 'x', {NOW + 1})"):
        with pytest.raises(SnapshotNotFound, match=r"table db\.t has no"):
            warehouse.call(wrong)
    assert len(warehouse.call("delete_tag('db.t', 'two, timed')").reports) == 2
    assert warehouse.table.tags() == {}
    warehouse.call("expire_tags('db.t', '2038-01-01 00:00:00')")
    warehouse.call("trigger_tag_automatic_creation('db.t')")


def test_branches(warehouse: Warehouse) -> None:
    warehouse.call("create_tag('db.t', 'one', 1)")
    warehouse.call("create_branch('db.t', 'dev', 'one')")
    assert warehouse.call("create_branch(table => 'db.t', branch => 'dev', ignoreIfExists => true)").steps == ()
    warehouse.call("rename_branch('db.t', 'dev', 'test')")
    assert warehouse.table.branches() == ["test"]
    warehouse.call("fast_forward('db.t', 'test')")
    assert warehouse.table.to_arrow(["v"]).column("v").to_pylist() == [0, 0]
    warehouse.call("delete_branch('db.t', 'test')")
    assert warehouse.table.branches() == []


@pytest.mark.parametrize(
    ("call", "snapshot"),
    [
        ("rollback('db.t', '2')", 2),
        ("rollback('db.t', 'first')", 1),
        ("rollback(table => 'db.t', snapshot => 2)", 2),
        ("rollback_to(table => 'db.t', tag => 'first')", 1),
        (f"rollback_to_timestamp('db.t', {NOW})", 3),
        ("rollback_to_watermark('db.t', 70)", 4),
    ],
)
def test_rollbacks(warehouse: Warehouse, call: str, snapshot: int) -> None:
    warehouse.table.create_tag("first", 1)
    if "watermark" in call:
        for watermark in (70, 80):
            warehouse.table.write(pa.table({"dt": ["a"], "k": [5], "v": [5]}, FIELDS), watermark=watermark)
    warehouse.call(call)
    newest = warehouse.table.latest_snapshot()
    assert newest is not None and newest.id == snapshot


def test_expiry_manifests_orphans_statistics_and_repair(warehouse: Warehouse) -> None:
    warehouse.call("expire_snapshots(table => 'db.t', retain_max => 1, retain_min => 1)")
    assert [snapshot.id for snapshot in warehouse.table.snapshots()] == [3]
    warehouse.call("expire_changelogs(table => 'db.t', delete_all => true)")
    warehouse.call("compact_manifest('db.t')")
    warehouse.call("analyze('db.t', 'k,v')")
    warehouse.call("refresh_iceberg('db.t', true)")
    newest = warehouse.table.latest_snapshot()
    assert newest is not None and newest.commit_kind.value == "ANALYZE"
    orphan = Path(warehouse.table.store.root) / "manifest" / "manifest-stray-0"
    orphan.write_bytes(b"x")
    planned = warehouse.call(
        "remove_orphan_files(table => 'db.*', older_than => '2001-01-01 00:00:00', dry_run => true, parallelism => 4)"
    )
    assert not planned.applied and planned.reports == () and len(planned.plans) == 1
    for call in (
        "remove_unexisting_files('db.t')",
        "remove_unexisting_manifests('db.t')",
        "repair('db')",
        "repair('db.t')",
    ):
        assert len(warehouse.call(call).reports) == 1, call


def test_a_rescale_whose_partitions_all_wait_for_a_compaction_is_an_error(warehouse: Warehouse) -> None:
    table = warehouse.catalog.create_table(
        "db.w", Schema(FIELDS, ["dt", "k"], ["dt"], {"bucket": "1", "changelog-producer": "full-compaction"})
    )
    for day in ("a", "b"):
        table.write(pa.table({"dt": [day], "k": [1], "v": [1]}, FIELDS))
    with pytest.raises(UnsupportedFeature, match=r"rescale: dt=a: changes of it wait.*\(and 1 more\) .*db\.w"):
        warehouse.call("rescale('db.w', 2)")
    warehouse.call("compact('db.w', 'dt=b')")
    assert len(warehouse.call("rescale('db.w', 2)").plans[0].items) == 1
    assert not warehouse.call("rescale('db.w', 2, 'dt=b')").plans[0].items


def test_partitions_expire_are_marked_done_rescaled_and_purged(warehouse: Warehouse) -> None:
    warehouse.call("mark_partition_done('db.t', 'dt=a')")
    assert (Path(warehouse.table.store.root) / "dt=a" / "_SUCCESS").exists()
    warehouse.call("rescale(table => 'db.t', bucket_num => 2, partitions => 'dt=a')")
    assert {item.partition["dt"] for item in warehouse.table.health() if item.bucket == 1} <= {"a"}
    late = Catalog(warehouse.catalog.root, clock=FixedClock(NOW + 40 * 86_400_000))
    late.table("db.t").write(pa.table({"dt": ["c"], "k": [1], "v": [1]}, FIELDS))
    prepare_call(
        late, "sys.expire_partitions(table => 'db.t', expiration_time => '30 d', expire_strategy => 'update-time')"
    ).apply()
    assert warehouse.table.to_arrow(["dt"]).column("dt").to_pylist() == ["c"]
    warehouse.call("purge_files('db.t')")
    assert warehouse.table.to_arrow().num_rows == 0


def test_consumers(warehouse: Warehouse) -> None:
    warehouse.call("reset_consumer('db.t', 'etl', 2)")
    warehouse.call("reset_consumer(table => 'db.t', consumer_id => 'other', next_snapshot_id => 1)")
    assert warehouse.table.consumers() == {"etl": 2, "other": 1}
    warehouse.call("clear_consumers('db.t', 'e.*|o.*', 'etl')")
    assert warehouse.table.consumers() == {"etl": 2}
    warehouse.call("reset_consumer('db.t', 'etl')")
    assert warehouse.table.consumers() == {}


WRONG: tuple[tuple[str, type[DredgeError], str], ...] = (
    ("nope('db.t')", InvalidOption, r"'sys\.nope'; accepted: one of compact, compact_database, .*analyze"),
    ("compact()", InvalidOption, r"option 'table' cannot be None; .*sys\.compact\(table, \[partitions\]"),
    ("compact('')", InvalidOption, "option 'table'"),
    (
        "compact(table => 'db.t', tabel => 1)",
        InvalidOption,
        r"option 'tabel' cannot be 1; accepted: arguments of sys\.compact\(",
    ),
    ("rename_tag('db.t', 'a', 'b', 'c')", InvalidOption, "'4 arguments'"),
    (
        "create_tag('db.t', 'x', 'three')",
        InvalidOption,
        "option 'snapshot' cannot be 'three'; accepted: a whole number",
    ),
    ("create_tag('db.t', 'x', true)", InvalidOption, "option 'snapshot' cannot be True"),
    ("compact('db.t', 'dt')", InvalidOption, "option 'partitions' cannot be 'dt'; accepted: partitions such as"),
    ("compact('db.t', 'dt=a,/')", InvalidOption, "option 'partitions' cannot be 'dt=a,/'"),
    ("compact('db.t', 'dt=a,dt=b')", InvalidOption, "option 'partitions' cannot be 'dt=a,dt=b'"),
    ("compact(table => 'db.t', buckets => '0,x')", InvalidOption, "option 'buckets'"),
    ("compact(table => 'db.t', options => 'x')", InvalidOption, "option 'options'"),
    ("compact(table => 'db.t', compact_strategy => 'some')", InvalidOption, "full, minor"),
    ("compact(table => 'db.t', order_strategy => 'zorder')", InvalidOption, "option 'order_by'"),
    (
        "compact(table => 'db.t', partitions => 'dt=a', where => 'dt = 1')",
        InvalidOption,
        "no value together with partitions",
    ),
    ("compact(table => 'db.t', where => 'v = 1')", InvalidFilter, "'v' is not a partition column; they are dt"),
    ("compact(table => 'db.none')", TableNotFound, r"db\.none"),
    ("compact(table => 'db.t$files')", UnsupportedFeature, "a procedure on a system table"),
    ("expire_snapshots(table => 'db.t', older_than => 'yesterday')", InvalidOption, "option 'older_than'"),
    ("expire_partitions(table => 'db.t', expiration_time => 'long')", InvalidOption, "option 'expiration_time'"),
    ("compact_database(including_tables => '(')", InvalidOption, "option 'including_tables'"),
    ("compact_database(mode => 'both')", InvalidOption, "option 'mode'.*divided, combined"),
    ("compact_database(options => 'a=b', table_options => 'a=b')", InvalidOption, "option 'table_options'"),
    (
        "compact(table => 'db.t', order_strategy => 'order', order_by => 'v', partition_idle_time => '7 d')",
        InvalidOption,
        "'partition_idle_time' of table db.t cannot be '7d'",
    ),
    ("remove_orphan_files(table => 'db.t', dry_run => 'perhaps')", InvalidOption, "option 'dry_run'"),
    ("rollback(table => 'db.t', version => '1', tag => 'x')", InvalidOption, "option 'version'"),
    ("rollback_to_watermark('db.t', 1)", SnapshotNotFound, "watermark up to 1"),
)


def test_a_wrong_call_is_answered_by_name_and_changes_nothing(warehouse: Warehouse) -> None:
    for call, kind, part in WRONG:
        with pytest.raises(kind, match=part):
            warehouse.call(call)
    assert [snapshot.id for snapshot in warehouse.table.snapshots()] == [1, 2, 3]
    assert warehouse.table.ledger() == []


def test_a_plan_changes_nothing(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path for path in Path(warehouse.catalog.root).rglob("*"))
    for call in (
        "compact('db.t')",
        "create_tag('db.t', 'x')",
        "rename_tag('db.t', 'x', 'y')",
        "create_branch('db.t', 'b')",
        "purge_files('db.t')",
    ):
        made = prepare_call(warehouse.catalog, f"CALL sys.{call}").plan()
        assert not made.applied and made.lines[0].startswith("would "), call
    assert before == sorted(path for path in Path(warehouse.catalog.root).rglob("*"))


def test_planned_procedures_name_actions_and_arguments_that_exist(warehouse: Warehouse) -> None:
    """A renamed action or argument must not go unnoticed: every argument given reaches the plan of its action."""
    given = {
        ParameterKind.NUMBER: "1",
        ParameterKind.FLAG: "true",
        ParameterKind.TIME: "1",
        ParameterKind.AGE: "'1 d'",
        ParameterKind.NAMES: "'v'",
        ParameterKind.NUMBERS: "'0'",
    }
    skipped = {
        "where",
        "partitions",
        "options",
        "order_by",
        "order_strategy",
        "compact_strategy",
        "snapshot",
        "snapshot_id",
        "version",
        "tag",
    }
    warehouse.table.create_tag("x", 1)
    warehouse.table.create_branch("x", "x")
    warehouse.table.reset_consumer("x", 2)
    own = {
        "timestamp": str(NOW),
        "watermark": "1",
        "partitions": "'dt=a'",
        "branch": "'x'",
        "tag": "'x'",
        "expire_strategy": "'update-time'",
    }
    own |= {
        "database_or_table": "'db.t'",
        "timestamp_formatter": "'yyyy'",
        "timestamp_pattern": "'$dt'",
        "mode": "'local'",
        "columns": "'v'",
        "table_options": "'num-levels=6'",
        "manifest_sort_max_rewrite_size": "'1 gb'",
        "manifest_sort_partition_field": "'dt'",
        "column": "'v'",
        "default_value": "'7'",
    }
    warehouse.table.write(pa.table({"dt": ["a"], "k": [5], "v": [5]}, FIELDS), watermark=1)
    for procedure in PROCEDURES.values():
        chosen = [
            parameter for parameter in procedure.parameters if parameter.required or parameter.name not in skipped
        ]
        values = {parameter.name: own.get(parameter.name) or given.get(parameter.kind, "'x'") for parameter in chosen}
        values |= {"table": "'db.t'"} if "table" in values else {}
        values.update({name: "'.*'" for name in values if name.startswith("including")})
        if procedure.name in ("rollback", "rollback_to"):
            values["tag"] = "'x'"
        if procedure.name == "compact_database":
            values["mode"] = "'combined'"
        if procedure.name == "rollback_to_as_latest":
            values["snapshot_id"] = "1"
        if procedure.name == "repair_earliest_snapshot":
            values["snapshot_id"] = "2"
        if procedure.name in ("create_tag", "create_tag_from_timestamp", "create_tag_from_watermark", "create_branch"):
            values |= {"tag": "'y'"} if "tag" in values else {"branch": "'y'"}
        if "time_retained" in values:
            values["time_retained"] = "'1 d'"
        text = f"sys.{procedure.name}({', '.join(f'{name} => {value}' for name, value in values.items())})"
        if procedure.name in (
            "purge_files",
            "clear_consumers",
        ):  # what is made here would hold the files, or is excluded
            continue
        if procedure.name == "merge_branch":  # db.t has a primary key
            continue
        if procedure.name in ("copy", "copy_files", "clone"):
            values = {name: values[name] for name in values if name.startswith("target_warehouse")}
            values |= {"database": "'db'", "table": "'t'"}
            values |= {"target_database": "'db'", "target_table": "'new'"} if procedure.name == "clone" else {}
            if procedure.name == "copy":
                values = {"source_table": "'db.t'", "target_table": "'db.new'"}
            text = f"sys.{procedure.name}({', '.join(f'{name} => {value}' for name, value in values.items())})"
        if procedure.name == "rewrite_file_index":
            warehouse.catalog.alter_table("db.t", [SchemaChange.set_option("file-index.bloom-filter.columns", "v")])
        made = prepare_call(warehouse.catalog, text).plan()
        assert made.steps or procedure.name == "compact_database", text


def test_the_page_names_every_procedure_as_it_is_called() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
    assert [form for form in (value.form for value in PROCEDURES.values()) if f"* `{form}`\n" not in page] == []


def test_the_platform_knows_no_sql() -> None:
    """What strangers reach through a web server runs no statement that they write; the import contract sees modules only."""
    root = Path(__file__).parents[2]
    found = [
        path
        for room in ("platform_core", "orchestration", "assets", "checks")
        for path in (root / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (
            str(node.module).startswith(("lsm_core.sql", "lsm_core.spark.spark_sql", "lsm_core.spark.spark_queries"))
            or (node.module == "lsm_core.spark" and {"call", "sql"} & {item.name for item in node.names})
        )
    ]
    assert found == []


def test_a_tag_from_a_time_looks_at_tagged_snapshots_too(warehouse: Warehouse) -> None:
    """As Java: the oldest of that time or later, though it expired and only another tag keeps it."""
    warehouse.call("create_tag('db.t', 'kept', 1)")
    first = warehouse.table.tags()["kept"].snapshot
    clock = warehouse.table.store.clock
    assert isinstance(clock, FixedClock)
    clock.advance(1_000)
    warehouse.table.write(warehouse.table.to_arrow())
    warehouse.table.expire_snapshots(retain_max=1)
    assert min(snapshot.id for snapshot in warehouse.table.snapshots()) > 1
    warehouse.call(f"create_tag_from_timestamp('db.t', 'timed', {first.time_millis})")
    assert warehouse.table.tags()["timed"].snapshot.id == 1


def test_defaults_are_literals_blank_texts_and_null(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    row = pa.struct([("x", pa.int32())])
    fields = [("k", pa.int64()), ("b", pa.bool_()), ("s", pa.string()), ("n", pa.int32()), ("r", row)]
    catalog.create_table("db.t", pa.schema(fields))

    def default_after(column: str, literal: str) -> str | None:
        prepare_call(catalog, f"CALL sys.alter_column_default_value('db.t', '{column}', {literal})").apply()
        return catalog.table("db.t").schema.field(column).default

    assert default_after("b", "true") == "true"
    assert default_after("b", "FALSE") == "false"
    assert default_after("s", "''") == ""
    assert default_after("s", "' '") == " "
    assert default_after("n", "-7") == "-7"
    assert default_after("n", "8") == "8"
    catalog.table("db.t").write(pa.table({"k": [1]}))
    assert catalog.table("db.t").to_arrow().to_pylist() == [{"k": 1, "b": False, "s": " ", "n": 8, "r": None}]
    assert default_after("n", "null") is None
    call = "alter_column_default_value(`table` => 'db.t', `column` => 's', default_value => null)"
    assert prepare_call(catalog, f"CALL sys.{call}").plan().lines == ["would remove the default of column s of db.t"]
    for wrong, message in {
        "'db.t', 'n', '1.5'": "default '1.5' does not fit, writers would use 1",
        "'db.t', 'n', ''": "is not a INT",
        "'db.t', 'r.x', '1'": "a column, not a field inside one",
        "'db.t', 'n'": "default_value.*requires it",
        "'db.t', 'n', array(1)": "a literal, or null",
        "'db.t', '', '1'": "column.*requires it",
        "'db.t', 'none', '1'": "none",
    }.items():
        with pytest.raises(DredgeError, match=message):
            prepare_call(catalog, f"CALL sys.alter_column_default_value({wrong})").apply()


def test_calls_without_work_say_why(warehouse: Warehouse) -> None:
    no_partition = "table: no such partition holds a file"
    assert warehouse.call("rescale('db.t', 2, 'dt=none')").lines == ["nothing was rescaled", no_partition]
    by_condition = "rescale(`table` => 'db.t', bucket_num => 2, where => \"dt = 'none'\")"
    assert warehouse.call(by_condition).lines == ["nothing was rescaled", no_partition]
    warehouse.catalog.alter_table("db.t", [SchemaChange.set_option("file-index.bloom-filter.columns", "v")])
    assert warehouse.call("rewrite_file_index('db.t')").plans[0].items
    nothing = "no file index of db.t was written"
    assert warehouse.call("rewrite_file_index('db.t')").lines == [
        nothing,
        "6 files have the indexes that the options name",
    ]
    assert warehouse.call("rewrite_file_index('db.t', 'dt=none')").lines == [nothing, no_partition]
    preview = prepare_call(warehouse.catalog, "CALL sys.rewrite_file_index('db.t', 'dt=none')").plan()
    assert preview.lines[1:] == [no_partition]
    for where, message in {
        "day": r"'where' cannot be 'day'; accepted: a comparison was expected: .* \(after its end, character 4\)",
        "day = 1": "'day' is not a partition column; they are dt",
        "dt = ": r"cannot be 'dt ='; .*\(after its end, character 6\)",
    }.items():
        with pytest.raises(DredgeError, match=message):
            warehouse.call(f"rescale(`table` => 'db.t', bucket_num => 2, where => '{where}')")


def test_a_partition_with_outer_blanks_is_named_by_a_condition(warehouse: Warehouse) -> None:
    warehouse.table.write(pa.table({"dt": [" it's "], "k": [3], "v": [4]}, FIELDS))
    for call in ("compact('db.t', \"dt=it's\")", "drop_partition('db.t', \"dt= it's \")"):
        with pytest.raises(InvalidFilter, match=r"one has blanks around them.* condition: dt = ' it''s '"):
            warehouse.call(call)
    assert warehouse.call("compact(`table` => 'db.t', where => \"dt = ' it''s '\")").reports[0].changed
    assert warehouse.call("drop_partition('db.t', 'dt=its')").lines == ["nothing to do"]


@pytest.mark.parametrize("name", [name for name, made in PROCEDURES.items() if made.parameters[0].name == "table"])
def test_a_system_table_of_the_catalog_is_refused_by_name(warehouse: Warehouse, name: str) -> None:
    required = [parameter for parameter in PROCEDURES[name].parameters if parameter.required]
    values = {ParameterKind.NUMBER: "1", ParameterKind.PARTITIONS: "'dt=a'"}
    values[ParameterKind.TIME] = "1"
    others = [f", {parameter.name} => {values.get(parameter.kind, repr('x'))}" for parameter in required[1:]]
    with pytest.raises(UnsupportedFeature, match=r"sys\.tables: a procedure on a system table|system table"):
        warehouse.call(f"{name}(`table` => 'sys.tables'{''.join(others)})")
