"""One Spark session for the whole folder: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.spark import TracedSession, traced_session


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedSession]:
    """The session with its event log and its workers' trace."""
    with traced_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def spark(traced: TracedSession) -> Any:
    """The session alone."""
    return traced.spark
