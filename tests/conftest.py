"""What every test shares: reproducible random cases, with the seed printed when one fails, and one Spark session."""

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    """Files stay whole: fixtures of a module, such as a running platform, are made once."""
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The largest groups first, or the other process would wait for them at the end."""
    items.sort(key=lambda item: turn_of(item.nodeid))


_COUNTED = ("fault points, disk", "fault points, object store", "kill points", "interleavings")
"""Properties that tests of faults record: how many points they came to."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many faults, kills and interleavings the tests of this run saw."""
    counts = dict.fromkeys(_COUNTED, 0)
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name in counts:
                counts[name] += value
    told = [f"{count:,} {name}" for name, count in counts.items() if count]
    if told:
        terminalreporter.write_line(f"counted: {'; '.join(told)}")


def pytest_collection() -> None:
    """Thousands of tests are collected, and none of them is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is there now stays to the end: the collector need not look at it after each test."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedSession]:
    """The session of the whole run, with its event log and its workers' trace: a process has one, and starting it takes seconds."""
    with traced_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def spark(traced: TracedSession) -> Any:
    """The session alone."""
    return traced.spark


@pytest.fixture(scope="session")
def postgresql_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The JDBC address of a running PostgreSQL, whose user needs PASSWORD; skipped, loudly, where none is installed."""
    with postgresql(tmp_path_factory.mktemp("postgresql")) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def database_address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The JDBC address of a database of each kind that catalogs and locks may lie in, with its password in the environment."""
    monkeypatch.setenv("DREDGE_JDBC_PASSWORD", PASSWORD)
    if request.param == "sqlite":
        return f"jdbc:sqlite:{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgresql_address"))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server on loopback, in a process of its own for the whole run."""
    with s3_server() as server:
        yield server
