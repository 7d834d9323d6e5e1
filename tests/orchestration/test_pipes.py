"""DREDGE_RUNNER=pipes: another program applies the plan of a run, and what it tells comes back as the run's own numbers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.maintenance import read_ledger
from lsm_core.metadata import snapshots
from platform_core.resources import SparkResource
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
    told = house.materialisation(TABLE)
    assert (told["action"], told["snapshot published"], told["rows in"], told["files out"]) == ("compact", 6, 250, 1)
    entry = read_ledger(house.warehouse.store(TABLE))[-1]
    assert entry.approved_by == f"dagster run {done.run_id}"
    assert told["run id"] == entry.run_id
    assert evaluations(done)["merged_view_unchanged"][0]
    assert house.warehouse.table(TABLE).to_arrow().sort_by("id") == before


def test_a_program_that_dies_without_a_word_changes_nothing_and_fails_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    told = root / "told"
    code = f"import os; open({str(told)!r}, 'w').write(os.environ['PYSPARK_DRIVER_PYTHON']); raise SystemExit(3)"
    with open_house(root, DREDGE_RUNNER="pipes", DREDGE_SPARK_SUBMIT=shlex.join([sys.executable, "-c", code])) as house:
        done = house.execute("compact", run_config={"table": TABLE})
        assert "ended without a report about plan" in failure(done)
        assert snapshots.latest_id(house.warehouse.store(TABLE)) == 5
    assert told.read_text() == sys.executable
