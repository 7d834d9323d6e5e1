"""A session made by plain PySpark: its workers get this Python, or registering says what is wrong with theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lsm_core.errors import SparkFailed
from lsm_core.spark import read_table, register
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


def test_importing_the_package_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, lsm_core.spark; print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = run_script(code)
    assert done.stdout.strip() == "[]", done.stderr
