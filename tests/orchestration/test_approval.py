"""`approval: required`: runs, ticks and retention stop at a stored plan, and what a person approves is what is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dredge.platform_core import names
from lsm_core.cli.app import run as run_cli
from lsm_core.maintenance import read_ledger, waiting_plans
from lsm_core.metadata import snapshots
from tests.orchestration.test_action_jobs import said
from tests.support.platform import House, commit, keyed_table, open_house

TABLE = "shop.orders"
POLICIES = """
defaults:
  approval: {compact: required, expire_snapshots: required}
tables:
  shop.free: {approval: {compact: none}}
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    root = tmp_path / "wh"
    small = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 h"}
    commit(keyed_table(root, TABLE, partitioned=False, **small), 5)
    commit(keyed_table(root, "shop.free", partitioned=False), 5)
    with open_house(root, DREDGE_POLICIES=str(tmp_path / "policies.yaml")) as found:
        yield found


def test_a_tick_stores_the_plan_and_starts_nothing_until_somebody_approves(house: House) -> None:
    first = house.tick(names.SORTED_RUN_SENSOR)
    assert [request.tags[names.TAG_TABLE] for request in first.run_requests] == ["shop.free"]
    store = house.warehouse.store(TABLE)
    (waiting,) = waiting_plans(store)
    assert "approval is required (policies.yaml:3" in waiting.why
    second = house.tick(names.SORTED_RUN_SENSOR)
    lines = [entry for entry in tick_lines(second) if entry.startswith(TABLE)]
    assert not [request for request in second.run_requests if request.tags[names.TAG_TABLE] == TABLE]
    if lines:  # a tick that starts runs tells its lines in its log alone
        assert f"decline (waits for approval): 5 sorted runs >= 5; plan {waiting.plan.hash} waits" in lines[0]
    asked = {"table": TABLE, "hash": waiting.plan.hash, "approved_by": "ann"}
    assert house.execute("apply_plan", run_config=asked).success
    assert snapshots.latest_id(store) == 6
    assert not waiting_plans(store)


def test_a_plan_with_the_verification_of_the_policy_is_listed_everywhere(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(house.environment["DREDGE_POLICIES"])
    file.write_text(POLICIES.replace("defaults:\n", "defaults:\n  verification: sampled\n"))
    house.load()
    house.tick(names.SORTED_RUN_SENSOR)
    (waiting,) = waiting_plans(house.warehouse.store(TABLE))
    assert waiting.plan.options["dredge.verification"] == "sampled"
    assert run_cli(["plans", TABLE, "-w", str(house.root)]) == 0
    assert waiting.plan.hash in capsys.readouterr().out


def tick_lines(result: object) -> list[str]:
    return (getattr(result, "skip_message", None) or "").splitlines()


def test_a_click_ends_green_at_the_stored_plan_and_its_page_leads_to_the_approval(house: House) -> None:
    clicked = house.maintain(TABLE)
    assert clicked.success
    store = house.warehouse.store(TABLE)
    assert snapshots.latest_id(store) == 5
    (waiting,) = waiting_plans(store)
    metadata = house.materialisation(TABLE)
    assert (metadata["action"], metadata["outcome"]) == (
        "waits for approval",
        f"waits for approval: plan {waiting.plan.hash}",
    )
    assert (
        f"plan `{waiting.plan.hash}`: [approve and apply it](/locations/dredge/jobs/apply_plan/"
        in metadata["waits for approval"]
    )
    run = house.instance.get_run_by_id(clicked.run_id)
    assert run is not None
    assert run.tags[names.TAG_WAITS] == waiting.plan.hash
    assert house.execute("compact", run_config={"table": TABLE, "full": True}).success, "nor do jobs by action"
    assert snapshots.latest_id(store) == 5


def test_retention_and_maintain_stop_there_too(house: House) -> None:
    store = house.warehouse.store(TABLE)
    house.environment["DREDGE_CLOCK"] = f"fixed:{store.clock.now_ms() + 7 * 24 * 3_600_000}"
    house.load()
    kept = house.execute(names.RETENTION_JOB)
    assert kept.success
    store = house.warehouse.store(TABLE)
    assert snapshots.list_ids(store) == [1, 2, 3, 4, 5]
    assert [plan.plan.action for plan in waiting_plans(store)] == ["expire_snapshots"]
    assert any("waits for approval: plan" in line for line in said(house, kept))
    assert house.execute(names.MAINTAIN_JOB, run_config={"pattern": "shop.*", "actions": ["compact"]}).success
    assert {plan.plan.action for plan in waiting_plans(store)} == {"compact", "expire_snapshots"}
    assert snapshots.latest_id(house.warehouse.store("shop.free")) == 6
    assert all(entry.action != "compact" for entry in read_ledger(store))
