"""Every public verb of the facade and of the command line, on a store that fails: the error is one of Dredge's and names the thing."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from lsm_core.cli import app
from lsm_core.errors import DredgeError
from lsm_core.maintenance import SimulatedPolicy
from lsm_core.table import Catalog, SchemaChange, Table, catalog
from tests.table.broken_store import FAULTS, BrokenStore

ROW: Final = pa.table({"id": [1], "dt": ["a"], "v": [7]})
COLUMNS: Final = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("v", pa.int64())])
PLAN: Final = "0" * 32
PARTITION: Final = [{"dt": "a"}]
TABLE: Final[dict[str, Callable[[Table], Any]]] = {
    "analyze": lambda t: t.analyze(),
    "apply": lambda t: t.apply(t.plan_maintenance("compact")),
    "branches": lambda t: t.branches(),
    "check": lambda t: t.check(),
    "compact": lambda t: t.compact(full=True),
    "consumers": lambda t: t.consumers(),
    "copy": lambda t: t.copy({"num-sorted-run.compaction-trigger": "3"}),
    "create_branch": lambda t: t.create_branch("other"),
    "create_tag": lambda t: t.create_tag("other"),
    "delete": lambda t: t.delete("id = 1"),
    "delete_branch": lambda t: t.delete_branch("dev"),
    "delete_tag": lambda t: t.delete_tag("kept"),
    "drop_partitions": lambda t: t.drop_partitions(PARTITION),
    "expire_partitions": lambda t: t.expire_partitions(0, timestamp_pattern="$dt"),
    "expire_snapshots": lambda t: t.expire_snapshots(retain_max=1, retain_min=1),
    "expire_tags": lambda t: t.expire_tags(0),
    "explain_row": lambda t: t.explain_row({"id": 1, "dt": "a"}),
    "fast_forward": lambda t: t.fast_forward("dev"),
    "forget_consumer": lambda t: t.forget_consumer("reader"),
    "health": lambda t: t.health(),
    "holds": lambda t: t.holds(),
    "incremental": lambda t: t.incremental(1, 2),
    "latest_snapshot": lambda t: t.latest_snapshot(),
    "ledger": lambda t: t.ledger(),
    "load_plan": lambda t: t.load_plan(PLAN),
    "lookup": lambda t: t.lookup(ROW.select(["id", "dt"])),
    "mark_partitions_done": lambda t: t.mark_partitions_done(PARTITION),
    "new_commit": lambda t: t.new_commit(),
    "new_stream_commit": lambda t: t.new_stream_commit("user"),
    "new_stream_scan": lambda t: t.new_stream_scan("reader"),
    "new_stream_write": lambda t: t.new_stream_write("user"),
    "new_write": lambda t: t.new_write(),
    "plan_maintenance": lambda t: t.plan_maintenance("compact"),
    "plan_scan": lambda t: t.plan_scan(),
    "recover": lambda t: t.recover(),
    "refresh": lambda t: t.refresh(),
    "remove_orphan_files": lambda t: t.remove_orphan_files(0),
    "rename_branch": lambda t: t.rename_branch("dev", "two"),
    "rename_tag": lambda t: t.rename_tag("kept", "two"),
    "reset_consumer": lambda t: t.reset_consumer("reader", 1),
    "restore": lambda t: t.restore("expire-1"),
    "rollback_to": lambda t: t.rollback_to(1),
    "rollback_to_as_latest": lambda t: t.rollback_to_as_latest(1),
    "save_plan": lambda t: t.save_plan(_kept_plan(t)),
    "saved_plans": lambda t: t.saved_plans(),
    "scan": lambda t: t.scan(),
    "simulate": lambda t: t.simulate([SimulatedPolicy("plain", {})]),
    "snapshots": lambda t: t.snapshots(),
    "sweep_trash": lambda t: t.sweep_trash(),
    "tags": lambda t: t.tags(),
    "to_arrow": lambda t: t.to_arrow(),
    "to_batches": lambda t: list(t.to_batches()),
    "to_duckdb": lambda t: t.to_duckdb(),
    "to_pandas": lambda t: t.to_pandas(),
    "to_polars": lambda t: t.to_polars(),
    "truncate": lambda t: t.truncate(),
    "undo": lambda t: t.undo("run"),
    "update": lambda t: t.update("id = 1", {"v": 2}),
    "upsert": lambda t: t.upsert(ROW),
    "verify": lambda t: t.verify(1, 2),
    "write": lambda t: t.write(ROW),
}
CATALOG: Final[dict[str, Callable[[Catalog], Any]]] = {
    "alter_table": lambda c: c.alter_table("db.t", [SchemaChange.set_option("snapshot.num-retained.max", "9")]),
    "create_database": lambda c: c.create_database("more"),
    "create_table": lambda c: c.create_table("db.more", COLUMNS),
    "drop_database": lambda c: c.drop_database("db", cascade=True),
    "drop_table": lambda c: c.drop_table("db.t"),
    "list_databases": lambda c: c.list_databases(),
    "list_lost_schemas": lambda c: c.list_lost_schemas("db"),
    "list_tables": lambda c: c.list_tables("db"),
    "other_tables": lambda c: c.other_tables("db"),
    "read_ahead": lambda c: c.read_ahead("db"),
    "load_maintenance": lambda c: c.load_maintenance(PLAN),
    "maintain": lambda c: c.maintain(PLAN),
    "plan_maintenance": lambda c: c.plan_maintenance("db.*"),
    "register_table": lambda c: c.register_table("db.t"),
    "rename_table": lambda c: c.rename_table("db.t", "db.u"),
    "store": lambda c: c.store("db.t"),
    "store_as_stored": lambda c: c.store_as_stored("db.t"),
    "table": lambda c: c.table("db.t"),
}
CLI: Final[dict[str, list[str]]] = {
    "analyze": ["db.t"],
    "apply": ["db.t", PLAN],
    "assign-buckets": ["db.t"],
    "branch": ["create", "db.t", "other"],
    "check": ["db.t"],
    "compact": ["db.t", "--full"],
    "compact-manifests": ["db.t"],
    "consumers": ["list", "db.t"],
    "copy-table": ["db.t", "db.copied"],
    "doctor": [],
    "drop-partitions": ["db.t", "--partition", "dt=a"],
    "expire": ["db.t"],
    "expire-changelogs": ["db.t"],
    "expire-partitions": ["db.t"],
    "explain": ["db.t", "id=1,dt=a"],
    "files": ["db.t"],
    "health": ["db.t"],
    "holds": ["db.t"],
    "ledger": ["db.t"],
    "maintain": ["db.*"],
    "merge-branch": ["db.t", "dev"],
    "metrics": [],
    "orphans": ["db.t"],
    "partitions": ["db.t"],
    "plan": ["db.t"],
    "plans": ["db.t"],
    "purge": ["db.t", "db.t"],
    "recover": ["db.t"],
    "refresh-iceberg": ["db.t"],
    "remove-unexisting-files": ["db.t"],
    "remove-unexisting-manifests": ["db.t"],
    "repair": ["db.t"],
    "rescale": ["db.t"],
    "restore": ["db.t", "expire-1"],
    "rewrite-file-index": ["db.t"],
    "rollback": ["db.t", "--snapshot", "1"],
    "rollback-as-latest": ["db.t", "--snapshot", "1"],
    "show": ["db.t"],
    "snapshots": ["db.t"],
    "sql": ["CALL sys.compact(table => 'db.t')"],
    "status": ["db.t"],
    "tables": [],
    "tag": ["create", "db.t", "other"],
    "trash": ["db.t"],
    "undo": ["db.t", "run"],
    "verify": ["db.t", "1", "2"],
}
_plans: dict[str, Any] = {}


def _kept_plan(table: Table) -> Any:
    """A plan that was made while the store worked."""
    return _plans[table.name]


def _verbs(facade: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(facade, inspect.isfunction) if not name.startswith("_")}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("errors") / "wh"
    made = Catalog(place)
    table = made.create_table(
        "db.t", COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "1"}, create_database=True
    )
    for _ in range(3):
        table.write(ROW)
    table.create_tag("kept", 1)
    table.create_branch("dev")
    _plans["db.t"] = table.plan_maintenance("compact", full=True)
    return place


@pytest.fixture
def broken(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[BrokenStore, Path]:
    place, store = tmp_path / "wh", BrokenStore()
    shutil.copytree(template, place)
    monkeypatch.setattr(catalog, "file_io_for", lambda *_: (store, str(place)))
    return store, place


def _names(error: DredgeError, place: Path) -> bool:
    """Whether the text names the table, a path of the warehouse, or the place itself."""
    return "db.t" in str(error) or str(place) in str(error) or "Catalog" in str(error)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("facade", [Table, Catalog])
def test_a_failing_store_is_one_of_dredges_errors(
    facade: type, fault: str, template: Path, broken: tuple[BrokenStore, Path]
) -> None:
    store, place = broken
    verbs: dict[str, Callable[[Any], Any]] = TABLE if facade is Table else CATALOG
    assert verbs.keys() == _verbs(facade), "a verb without its place in this sweep"
    wrong = []
    for name, call in verbs.items():
        store.fault = ""
        if name != "drop_database" or not place.exists():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(template, place)
        owner = Catalog(place)
        opened: Any = owner.table("db.t") if facade is Table else owner
        store.fail(fault)
        try:
            call(opened)
            if store.refused and fault != "read-only" and fault != "store half-way":
                wrong.append(f"{name} says nothing")
        except DredgeError as error:
            if not _names(error, place):
                wrong.append(f"{name} does not name the thing: {error}")
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("facade", [Table, Catalog])
def test_an_argument_of_another_type_is_one_of_dredges_errors(facade: type, broken: tuple[BrokenStore, Path]) -> None:
    _, place = broken
    opened: Any = Catalog(place).table("db.t") if facade is Table else Catalog(place)
    wrong = []
    for name in sorted(_verbs(facade)):
        parameters = list(inspect.signature(getattr(facade, name)).parameters.values())[1:]
        required = [
            parameter
            for parameter in parameters
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        for value in (object(), 3.5, b"x"):
            given = {parameter.name: value for parameter in required or parameters[:1]}
            if not given or "drop" in name:
                continue
            try:
                result = getattr(opened, name)(**given)
                if inspect.isgenerator(result):
                    list(result)
            except DredgeError as error:
                if not any(part in str(error) for part in ("db.t", name, "option '", repr(value), repr(value)[:40])):
                    wrong.append(f"{name}({value!r}) does not name the thing: {error}")
            except BaseException as error:
                wrong.append(f"{name}({value!r}): {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_verb_of_the_command_line_fails_with_one_line_and_its_code(
    fault: str, template: Path, broken: tuple[BrokenStore, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, place = broken
    assert CLI.keys() == {*app._VERBS, *app._load_action_verbs()}, "a verb without its place in this sweep"
    wrong = []
    for name, arguments in CLI.items():
        if name == "sql" and fault != "store down":  # it starts Spark where the catalog opens
            continue
        store.fault = ""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)
        store.fail(fault)
        capsys.readouterr()
        code = app.run([name, *arguments, "-w", str(place)])
        shown = capsys.readouterr()
        lines = [line for line in shown.err.splitlines() if line.startswith("dredge: ")]
        certain = store.refused and fault in ("store down", "no memory", "no permission")
        if "unexpected" in shown.err or "Traceback" in shown.err:
            wrong.append(f"{name}: {shown.err}")
        elif code not in (0, 1) or (certain and code == 0):
            wrong.append(f"{name} exits {code}: {shown.err}")
        elif code and (len(lines) != 1 or not ("db.t" in lines[0] or str(place) in lines[0])):
            wrong.append(f"{name} does not name the thing on one line: {shown.err}")
    assert not wrong, "\n".join(wrong)
