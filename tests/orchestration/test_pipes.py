"""DREDGE_RUNNER=pipes: another program applies the plan of a run, and what it tells comes back as the run's own numbers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core import names
from dredge.platform_core.failure_records import iterate_lasting
from dredge.platform_core.pipes_worker import describe_error
from dredge.platform_core.policies.permanent_failures import (
    PERMANENT_ERRORS,
    RemoteError,
    error_name,
    find_permanent_error,
    restore_remote_error,
)
from dredge.platform_core.resources import SparkResource
from lsm_core import Catalog, Schema
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, SparkFailed
from lsm_core.maintenance import read_ledger
from lsm_core.metadata import snapshots
from tests.orchestration.test_action_jobs import failure
from tests.support.platform import House, commit, evaluations, keyed_table, open_house

TABLE = "shop.orders"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    commit(keyed_table(tmp_path / "wh", TABLE, partitioned=False), 5)
    return tmp_path / "wh"


@pytest.fixture
def house(root: Path) -> Iterator[House]:
    with open_house(root, DREDGE_RUNNER="pipes", DREDGE_SPARK_SUBMIT=shlex.quote(sys.executable)) as found:
        yield found


def test_the_command_is_the_configured_one_and_the_script_that_applies_a_plan() -> None:
    submit = "spark-submit --master yarn --conf 'spark.app.name=a b'"
    made = SparkResource.from_environment({"DREDGE_RUNNER": "pipes", "DREDGE_SPARK_SUBMIT": submit})
    *words, script = made.command()
    assert words == ["spark-submit", "--master", "yarn", "--conf", "spark.app.name=a b"]
    assert Path(script).name == "pipes_worker.py"
    assert not made.uses_spark


def test_spark_submit_runs_the_driver_by_this_python_unless_another_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's own choice is the `python3` of the PATH, which has no Dredge where an environment is not activated."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    assert SparkResource().driver_environment() == {"PYSPARK_DRIVER_PYTHON": sys.executable}
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert SparkResource().driver_environment() == {}


@pytest.mark.parametrize("text", ["", "spark-submit 'open"])
def test_a_command_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidOption, match="DREDGE_SPARK_SUBMIT"):
        SparkResource.from_environment({"DREDGE_RUNNER": "pipes", "DREDGE_SPARK_SUBMIT": text})


@pytest.mark.soak
def test_another_program_applies_the_plan_and_its_numbers_are_the_runs(house: House) -> None:
    before = house.warehouse.table(TABLE).to_arrow().sort_by("id")
    done = house.maintain(TABLE)
    assert done.success
    metadata = house.materialisation(TABLE)
    assert (metadata["action"], metadata["snapshot published"], metadata["rows in"], metadata["files out"]) == (
        "compact",
        6,
        250,
        1,
    )
    entry = read_ledger(house.warehouse.store(TABLE))[-1]
    assert entry.approved_by == f"dagster run {done.run_id}"
    assert metadata["run id"] == entry.run_id
    assert evaluations(done)["merged_view_unchanged"][0]
    assert house.warehouse.table(TABLE).to_arrow().sort_by("id") == before


def test_a_program_that_dies_without_a_word_changes_nothing_and_fails_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    result = root / "told"
    code = f"import os; open({str(result)!r}, 'w').write(os.environ['PYSPARK_DRIVER_PYTHON']); raise SystemExit(3)"
    with open_house(root, DREDGE_RUNNER="pipes", DREDGE_SPARK_SUBMIT=shlex.join([sys.executable, "-c", code])) as house:
        done = house.execute("compact", run_config={"table": TABLE})
        assert "ended without a report about plan" in failure(done)
        assert snapshots.latest_id(house.warehouse.store(TABLE)) == 5
    assert result.read_text() == sys.executable


def test_every_error_of_the_other_program_that_no_retry_heals_is_recorded_as_one_of_this_process(
    tmp_path: Path,
) -> None:
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("total", pa.int64())])
    options = {
        "bucket": "1",
        "write-only": "true",
        "merge-engine": "aggregation",
        "fields.total.aggregate-function": "sum",
    }
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("shop")
    table = catalog.create_table(TABLE, Schema(fields, primary_keys=["id"], options=options))
    for _ in range(5):
        table.write(pa.table({"id": [1], "total": [2**62]}, schema=fields))
    submit = shlex.quote(sys.executable)
    with open_house(tmp_path / "wh", DREDGE_RUNNER="pipes", DREDGE_SPARK_SUBMIT=submit) as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        done = house.run(request)
        assert "ArithmeticOverflow: table shop.orders, column 'total'" in failure(done)
        (found,) = iterate_lasting(house.instance, house.warehouse, [TABLE])
        assert (found.error, found.file, found.snapshot) == ("ArithmeticOverflow", "", 5)
        tick = house.tick(names.SORTED_RUN_SENSOR)
        assert not tick.run_requests
        assert any("no retry helps" in line for line in house.lines(tick) if line.startswith(TABLE))


@pytest.mark.parametrize("kind", PERMANENT_ERRORS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_reported_error_is_as_permanent_as_in_this_process(kind: type[DredgeError], wrapped: bool) -> None:
    arguments = {"CorruptFile": ("/wh/f", "short"), "InvalidData": ("shop.orders", "v", "bad")}
    error = kind(*arguments.get(kind.__name__, ("V2",)))
    outer: DredgeError = SparkFailed("compact", "a task failed") if wrapped else error
    if wrapped:
        outer.__cause__ = ValueError("between them")
        outer.__cause__.__cause__ = error
    reported = json.loads(json.dumps(describe_error(outer)))
    restored = find_permanent_error(restore_remote_error(reported))
    assert isinstance(restored, RemoteError)
    assert (error_name(restored), str(restored)) == (kind.__name__, str(error))
    assert restored.path == ("/wh/f" if kind is CorruptFile else "")


@pytest.mark.parametrize(
    "report",
    [{"error": "StorageFull", "text": "no space"}, {"error": "KeyError", "text": 7, "causes": ["x", {"error": "y"}]}],
)
def test_a_reported_error_that_a_retry_may_heal_is_not_permanent(report: dict[str, object]) -> None:
    assert find_permanent_error(restore_remote_error(report)) is None


def test_the_program_on_the_cluster_needs_none_of_the_platforms_packages() -> None:
    code = "import sys, dredge.platform_core.pipes_worker; print({'dagster', 'yaml', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
