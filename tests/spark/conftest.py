"""Fixture of Java Paimon, for the tests that compare Java and Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import java_session as java_session

Java = Callable[..., dict[str, Any]]


@pytest.fixture
def java(java_session: Any) -> Java:
    """Return a function that calls the peer on table db.t of a warehouse: java("read", place)."""

    def call(op: str, place: Path, **arguments: Any) -> dict[str, Any]:
        return dict(java_session.call(op, warehouse=str(place), **{"table": "db.t", **arguments}))

    return call
