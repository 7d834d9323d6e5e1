"""A session made by plain PySpark: its workers get this Python, or registering says what is wrong with theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource

from lsm_core.errors import SparkFailed
from lsm_core.spark import read_table, register
from lsm_core.spark.session import launch_variables
from lsm_core.spark.spark_tasks import Shipped
from lsm_core.spark.worker_daemon import KINDS
from tests.spark.tables import make_table, rows, same
from tests.support.spark import run_script

pytestmark = pytest.mark.spark


@pytest.fixture
def plain(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session as plain PySpark makes it on a machine whose PATH has no python3 with Dredge."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-such-python3")
    monkeypatch.delenv("PYSPARK_PYTHON")
    return spark


def test_a_local_session_gets_this_python_where_none_was_chosen(plain: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1, 2, 3]))
    assert same(table.to_arrow(), read_table(plain, table).toArrow())
    plain.sparkContext.pythonExec = "no-such-python3"
    register(plain)
    assert plain.sparkContext.pythonExec == sys.executable
    assert plain.read.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t").load().count() == 3


def test_a_python_that_was_chosen_and_lacks_dredge_is_named(
    plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    monkeypatch.setattr(plain.sparkContext, "pythonExec", str(bare))
    with pytest.raises(
        SparkFailed, match=rf"registering.*\({bare}\) cannot use it: .*No module named.*set PYSPARK_PYTHON to"
    ):
        register(plain)


def told_by_a_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Who forked this worker, how many threads that process has, what was there at the start, and what two forks draw by chance."""
    before = set(sys.modules)
    for _ in batches:
        pass
    parent = Path(f"/proc/{os.getppid()}")
    reading, writing = os.pipe()
    child = os.fork()
    drawn = np.random.random_sample()
    if not child:
        os.write(writing, str(drawn).encode())
        os._exit(0)
    os.waitpid(child, 0)
    values = {
        "command": [parent.joinpath("cmdline").read_text().replace("\0", " ")],
        "threads": [len(list(parent.joinpath("task").iterdir()))],
        "missing": [",".join({"pyarrow", "lsm_core.compact.unit", "lsm_core.write.table_write"} - before)],
        "alike": [drawn == float(os.read(reading, 100))],
    }
    yield pa.RecordBatch.from_pydict(values)


def test_workers_are_forked_from_a_parent_that_has_imported_what_they_need(spark: Any) -> None:
    frame = spark.range(0, 1, 1, 1).mapInArrow(
        Shipped(told_by_a_worker), "command STRING, threads BIGINT, missing STRING, alike BOOLEAN"
    )
    (result,) = frame.toArrow().to_pylist()
    assert "-m lsm_core.spark.worker_daemon pyspark.worker" in result.pop("command")
    assert result == {"threads": 1, "missing": "", "alike": False}


def test_who_answers_for_a_data_source_is_forked_from_such_a_parent_too(spark: Any) -> None:
    class Told(DataSource):  # not by its name: nothing of Dredge is imported for it
        @classmethod
        def name(cls) -> str:
            return "told"

        def schema(self) -> str:
            return f"{'forked_with_it' if 'lsm_core.spark.data_source' in sys.modules else 'without_it'} INT"

    spark.dataSource.register(Told)
    assert spark.read.format("told").load().columns == ["forked_with_it"]


def test_a_hidden_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden_ran = True")
    path = os.pathsep.join([launch_variables()["PYTHONPATH"], str(tmp_path)])
    code = "import sys; print(sys.hidden_ran, 'lsm_core' in sys.modules, sys.modules['sitecustomize'].__file__)"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.stdout.split() == ["True", "False", str(tmp_path / "sitecustomize.py")], done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_workers_of_a_kind_need_is_there(kind: str) -> None:
    assert [name for name in (kind, *KINDS[kind]) if find_spec(name) is None] == []


def test_importing_the_package_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, lsm_core.spark; print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = run_script(code)
    assert done.stdout.strip() == "[]", done.stderr
