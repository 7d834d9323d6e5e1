"""A step that Dagster forgets at a free pool, as it happens between two of Dagster's own queries, gets the slot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.platform_core import names
from dredge.platform_core.pools import STUCK_MS, assign_forgotten_steps
from tests.support.platform import House, commit, keyed_table, open_house

POOL = names.SPARK_POOL


def forget_step(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let run ``b`` ask for the pool's only slot while run ``a`` frees it, and return the storage."""
    storage = instance.event_log_storage
    storage.set_concurrency_slots(POOL, 1)
    assert storage.claim_concurrency_slot(POOL, "a" * 8, "apply").is_claimed
    has_unassigned_slots = storage.has_unassigned_slots

    def free_between(pool: str) -> bool:
        answer = has_unassigned_slots(pool)
        storage.free_concurrency_slots_for_run("a" * 8)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(storage, "has_unassigned_slots", free_between)
        assert not storage.claim_concurrency_slot(POOL, "b" * 8, "apply").is_claimed
    return storage


def house_of(root: Path) -> Any:
    commit(keyed_table(root, partitioned=False), 1)
    return open_house(root)


def test_a_forgotten_step_gets_the_free_slot_after_two_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with house_of(tmp_path / "wh") as house:
        storage = forget_step(house.instance, monkeypatch)
        info = storage.get_concurrency_info(POOL)
        assert not info.claimed_slots
        assert not storage.claim_concurrency_slot(POOL, "b" * 8, "apply").is_claimed, "the slot is free, and it waits"
        now_ms = int(time.time() * 1000)
        assert assign_forgotten_steps(house.instance, house.warehouse.names, now_ms) == []
        (step,) = assign_forgotten_steps(house.instance, house.warehouse.names, now_ms + STUCK_MS + 5_000)
        assert (step.pool, step.run_id, step.step, step.is_healed) == (POOL, "b" * 8, "apply", True)
        assert storage.claim_concurrency_slot(POOL, "b" * 8, "apply").is_claimed
        assert assign_forgotten_steps(house.instance, house.warehouse.names, now_ms + 2 * STUCK_MS) == []


def test_a_step_that_waits_for_its_turn_is_left_alone(tmp_path: Path) -> None:
    with house_of(tmp_path / "wh") as house:
        storage = house.instance.event_log_storage
        for pool in (POOL, "of another project"):
            storage.set_concurrency_slots(pool, 1)
            assert storage.claim_concurrency_slot(pool, "a" * 8, "apply").is_claimed
            assert not storage.claim_concurrency_slot(pool, "b" * 8, "apply").is_claimed
        assert (
            assign_forgotten_steps(house.instance, house.warehouse.names, int(time.time() * 1000) + 10 * STUCK_MS) == []
        )
        assert not storage.claim_concurrency_slot(POOL, "b" * 8, "apply").is_claimed


@pytest.mark.parametrize("healed", [True, False])
def test_watch_assigns_the_slot_or_alerts_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, healed: bool
) -> None:
    with house_of(tmp_path / "wh") as house:
        forget_step(house.instance, monkeypatch)
        monkeypatch.setattr("dredge.platform_core.pools.STUCK_MS", 0)
        if not healed:
            monkeypatch.setattr("dredge.platform_core.pools.assign_pending_step", lambda *_: None)
        lines = _lines_of_pools(house)
        if healed:
            assert lines == [
                (
                    "pool spark: info (a step waits for a free pool): step apply of run bbbbbbbb has waited 0 min for a free "
                    "slot, which Dagster had not assigned to it; it is assigned now"
                )
            ]
            assert _lines_of_pools(house) == []
        else:
            assert lines[0].startswith("pool spark: error (a step waits for a free pool): ")
            assert "cancel the run and launch it again" in lines[0]


def _lines_of_pools(house: House) -> list[str]:
    return [line for line in house.lines(house.tick(names.WATCH_SENSOR)) if line.startswith("pool ")]
