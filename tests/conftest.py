"""Fixtures and settings of all tests: reproducible random cases, one Spark session, databases and an S3 server."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.databases import PASSWORD, postgresql
from tests.support.processes import ByGroup, turn_of
from tests.support.s3_server import S3Server, s3_server
from tests.support.samples import SOAK_PROFILE
from tests.support.spark import JAVA_OPTIONS, TracedSession, traced_session

# Of every Spark that a test starts, in whatever process: it halves the time that a start takes.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, JAVA_OPTIONS)

# Most tests make trees and histories of a shape of their own: writers that compact by themselves are tested where they are meant.
os.environ.setdefault("DREDGE_COMPACTION_INLINE", "never")

settings.register_profile(
    "dredge",
    deadline=None,
    max_examples=34,
    print_blob=True,
    derandomize="DREDGE_RANDOM_SEED"
    in os.environ,  # .ci/run: a change is judged by what it changed, not by what is drawn
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(SOAK_PROFILE, settings.get_profile("dredge"), max_examples=100, derandomize=False)
settings.load_profile("dredge")


@pytest.fixture(autouse=True)
def _same_dagster_home() -> Iterator[None]:
    """Restore DAGSTER_HOME after a test: monkeypatch puts back the home of an instance for tests that has ended."""
    before = os.environ.get("DAGSTER_HOME")
    yield
    if before is None:
        os.environ.pop("DAGSTER_HOME", None)
    else:
        os.environ["DAGSTER_HOME"] = before


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    """Return the scheduler that runs all tests of a file in one process, so that module fixtures are created once."""
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the largest groups to the front, so that no process waits for one of them at the end."""
    items.sort(key=lambda item: turn_of(item.nodeid))


_COUNTED = ("fault points, disk", "fault points, object store", "kill points", "interleavings")
"""Names of the properties in which fault tests record the number of points that they reached."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the numbers of faults, kills and interleavings that the passed tests of this run reached."""
    counts = dict.fromkeys(_COUNTED, 0)
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name in counts:
                counts[name] += value
    records = [f"{count:,} {name}" for name, count in counts.items() if count]
    if records:
        terminalreporter.write_line(f"counted: {'; '.join(records)}")


def pytest_collection() -> None:
    """Disable the garbage collector during collection, which creates thousands of lasting objects."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Freeze the collected objects, which live until the end, so that the garbage collector skips them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedSession]:
    """Yield the Spark session of the whole run, with its event log and the trace of its workers.

    A process can have only one session, and its start takes seconds.
    """
    with traced_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def spark(traced: TracedSession) -> Any:
    """Return the Spark session of `traced`."""
    return traced.spark


@pytest.fixture(scope="session")
def postgresql_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the JDBC address of a PostgreSQL server, whose user needs `PASSWORD`; skip the test without PostgreSQL."""
    with postgresql(tmp_path_factory.mktemp("postgresql")) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def database_address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the JDBC address of an SQLite and of a PostgreSQL database; the environment has the password."""
    monkeypatch.setenv("DREDGE_JDBC_PASSWORD", PASSWORD)
    if request.param == "sqlite":
        return f"jdbc:sqlite:{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgresql_address"))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """Yield an S3 server on loopback, which runs in its own process for the whole test run."""
    with s3_server() as server:
        yield server
