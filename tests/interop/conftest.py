"""Fixtures for the peers: one process of Java Paimon, pypaimon, pypaimon-rust and pyiceberg per test process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import (
    IcebergReaders,
    IcebergSpark,
    JavaPaimon,
    PyIcebergProcess,
    PyPaimon,
    PyPaimonProcess,
    PyPaimonRustProcess,
    SparkConnector,
    missing,
    peer_module,
)


@pytest.fixture(scope="session")
def java_session() -> Iterator[JavaPaimon]:
    """Yield one running JVM for all tests of this process; skip the test if Java Paimon is missing."""
    try:
        peer = JavaPaimon()
    except peer_module().PeerMissing as error:
        missing(f"Java Paimon: {error}")
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def java_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], JavaPaimon]]:
    """Yield a function that returns the JVM of a version of Java Paimon, or skips the test without that version.

    A JVM takes seconds to start and to get warm, so files that need one run in one process (`TOGETHER`) and share it.
    """
    running: dict[str, JavaPaimon] = {}

    def start(version: str) -> JavaPaimon:
        if version == peer_module().DEFAULT_VERSION:
            session: JavaPaimon = request.getfixturevalue("java_session")
            return session
        if version not in running:
            try:
                running[version] = JavaPaimon(version)
            except peer_module().PeerMissing as error:
                pytest.skip(f"NOT TESTED: Java Paimon {version}: {error}")
        return running[version]

    yield start
    for peer in running.values():
        peer.close()


@pytest.fixture
def java(java_session: JavaPaimon, tmp_path: Path) -> Any:
    """Return a function that calls the peer on this test's warehouse: java("read", table="db.t")."""

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(java_session.call(op, **{"warehouse": str(tmp_path), "table": "db.t", **arguments}))

    return call


@pytest.fixture(scope="module")
def connector() -> Iterator[SparkConnector]:
    """Yield Spark SQL with Paimon's connector, in a process of its own; skip the test, and say so, without it."""
    try:
        running = SparkConnector()
    except peer_module().PeerMissing as error:
        # No registry has the connector, so its absence does not fail a run with CI=true as that of other peers does.
        print(f"\nNOT TESTED: Paimon's Spark connector: {error}", file=sys.stderr)
        pytest.skip(f"NOT TESTED: Paimon's Spark connector: {error}")
    yield running
    running.close()


@pytest.fixture(scope="session")
def pypaimon_session() -> Iterator[PyPaimonProcess]:
    """One running pypaimon."""
    process = PyPaimonProcess()
    yield process
    process.close()


@pytest.fixture
def pypaimon(pypaimon_session: PyPaimonProcess, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> PyPaimon:
    """pypaimon on this test's warehouse."""
    return PyPaimon(pypaimon_session, tmp_path, tmp_path_factory.mktemp("pypaimon"))


@pytest.fixture(scope="session")
def pypaimon_rust_session() -> Iterator[PyPaimonRustProcess]:
    """One running pypaimon-rust."""
    process = PyPaimonRustProcess()
    yield process
    process.close()


@pytest.fixture
def pypaimon_rust(
    pypaimon_rust_session: PyPaimonRustProcess, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> PyPaimon:
    """pypaimon-rust on this test's warehouse."""
    return PyPaimon(pypaimon_rust_session, tmp_path, tmp_path_factory.mktemp("pypaimon-rust"))


@pytest.fixture(scope="session")
def pyiceberg_session() -> Iterator[PyIcebergProcess]:
    """One running pyiceberg."""
    process = PyIcebergProcess()
    yield process
    process.close()


@pytest.fixture
def iceberg(pyiceberg_session: PyIcebergProcess, tmp_path_factory: pytest.TempPathFactory) -> IcebergReaders:
    """pyiceberg and DuckDB as readers of any folder."""
    return IcebergReaders(pyiceberg_session, tmp_path_factory.mktemp("pyiceberg"))


@pytest.fixture(scope="module")
def iceberg_spark() -> Iterator[IcebergSpark]:
    """Yield Spark with Iceberg's runtime, in a process of its own; skip the test, and say so, without it."""
    try:
        running = IcebergSpark()
    except peer_module().PeerMissing as error:
        print(f"\nNOT TESTED: Iceberg on Spark: {error}", file=sys.stderr)
        pytest.skip(f"NOT TESTED: Iceberg on Spark: {error}")
    yield running
    running.close()
