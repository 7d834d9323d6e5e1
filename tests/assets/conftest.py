"""The demo's warehouse at the time of its backfill, and its platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dredge.assets.demo.replay import create_tables
from dredge.assets.demo.replay_clock import BACKFILL, batch_clock_ms
from dredge.platform_core.resources import WarehouseResource
from lsm_core.clock import FileClock
from tests.support.platform import House, open_house


@pytest.fixture
def warehouse(tmp_path: Path) -> WarehouseResource:
    clock = FileClock(str(tmp_path / "clock"))
    clock.set(batch_clock_ms(BACKFILL))
    found = WarehouseResource(
        path=str(tmp_path / "warehouse"), clock=clock.to_spec(), replay_state=str(tmp_path / "replay")
    )
    create_tables(found.catalog())
    return found


@pytest.fixture
def policies() -> Path | None:
    """Return the policy file that the platform loads, or None for no file."""
    return None


@pytest.fixture
def house(warehouse: WarehouseResource, policies: Path | None) -> Iterator[House]:
    environment = {
        "DREDGE_DEMO": "1",
        "DREDGE_CLOCK": warehouse.clock,
        "DREDGE_REPLAY_STATE": warehouse.replay_state,
    }
    if policies is not None:
        environment["DREDGE_POLICIES"] = str(policies)
    with open_house(Path(warehouse.path), **environment) as found:
        yield found
