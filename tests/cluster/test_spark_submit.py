"""Programs run by `spark-submit`, Dredge in the wheel of --py-files: on this machine, and on a cluster of two executors, one of which is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from lsm_core.spark import find_java
from tests.support.spark import JAVA_OPTIONS, ROOT

pytestmark = pytest.mark.spark
SECRET = "of-executors-4c1f"
CONF = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": SECRET,
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make wheel` builds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Dredge's dependencies and without Dredge."""
    folder = tmp_path_factory.mktemp("without-dredge")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    python = folder / "bin" / "python"
    look = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(look, check=True, capture_output=True, text=True, timeout=300).stdout.strip()
    # Path files inside the folder, such as the checkout's editable install, are not followed.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def submitted(
    wheel: Path,
    python: Path,
    folder: Path,
    master: str,
    *arguments: str,
    program: str = "submitted_job.py",
    **conf: str,
) -> dict[str, Any]:
    """What a program of this folder answers."""
    import pyspark

    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("DREDGE_", "PYTHON", "AWS_"))
    }
    environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JAVA_HOME": find_java().home, "SPARK_WORKER_DIR": str(folder / "work")}
    environment |= {"SPARK_LOCAL_DIRS": str(folder / "local"), "TMPDIR": str(folder)}
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master",
        master,
        "--py-files",
        str(wheel),
    ]
    for key, value in {**CONF, **conf}.items():
        command += ["--conf", f"{key}={value}"]
    job = str(Path(__file__).with_name(program))
    done = subprocess.run(
        [*command, job, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER:")]
    assert lines, done.stdout[-2000:] + done.stderr[-6000:]
    return dict(json.loads(lines[0][7:]))


@pytest.mark.soak
def test_a_python_without_dredge_writes_and_reads_by_the_wheel_of_py_files(
    wheel: Path, python: Path, tmp_path: Path
) -> None:
    result = submitted(wheel, python, tmp_path, "local[2]", str(tmp_path / "house"))
    assert result["driver"].startswith(str(wheel))
    assert result["master"] == "local[2]"
    (task,) = result["tasks"]
    # Workers import from the copy that Spark handed them, spill where Spark says, and have their own keys.
    assert task["source"].endswith(f"{wheel.stem}.zip/lsm_core/__init__.py")
    assert task["source"].startswith(str(tmp_path / "local"))
    assert task["spills"] is True
    assert task["secret"] == SECRET
    assert (result["keys"], result["new"], result["staged"], result["commits"]) == (400, 0, [], ["APPEND"])


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_job_maintains_a_table_with_modules_of_the_platform(wheel: Path, python: Path, tmp_path: Path) -> None:
    """Templates and settings of the platform are read from the wheel, which stays a ZIP file."""
    answer = submitted(wheel, python, tmp_path, "local[2]", str(tmp_path / "house"), program="platform_job.py")
    assert answer["platform"].startswith(str(wheel))
    assert (answer["success"], answer["report"], answer["page"]) == (True, 0, True)
    assert answer["keys"] == [0, 1, 2, 10]
    assert answer["kinds"] == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    assert answer["spark_jobs"] >= 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("speculation", ["false", "true"])
def test_two_executors_share_a_compaction_and_one_may_be_lost(
    wheel: Path, python: Path, tmp_path: Path, speculation: str
) -> None:
    """A write loses one of its two executors, Spark starts another; the files of the compaction after it are of both that are left."""
    always = {
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "10ms",
        "spark.speculation.interval": "20ms",
    }
    result = submitted(
        wheel,
        python,
        tmp_path,
        "local-cluster[2,1,1024]",
        str(tmp_path / "house"),
        str(tmp_path / "died"),
        **{
            "spark.executor.memory": "600m",
            "spark.speculation": speculation,
            **(always if speculation == "true" else {}),
        },
    )
    assert result["died"] is True
    assert (result["keys"], result["new"], result["staged"], result["verified"]) == (600, 400, [], True)
    assert result["commits"] == ["APPEND", "APPEND", "COMPACT"]
    assert {task["secret"] for task in result["tasks"]} == {SECRET}
    assert all(task["spills"] and ".zip/" in task["source"] for task in result["tasks"])
    assert len({executor.split(" on ")[0] for executor in result["executors"]}) == 2, result["executors"]
    # Of lost and doubled attempts no file is left, but what a killed executor had begun to write for the compaction.
    data = {path.name for path in (tmp_path / "house").rglob("data-*")}
    assert set(result["live"]) <= data
