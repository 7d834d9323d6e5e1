"""What leans on Dagster's inside: it does what it says with the version that is installed."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration import names, quirks
from tests.docs.pages import ROOT
from tests.support.platform import House, commit, keyed_table, open_house

DAGSTER = "1.13.27"
ORDERS, PLAIN = "shop.orders", "shop.plain"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, ORDERS), 1)
    commit(keyed_table(root, PLAIN, partitioned=False), 1)
    with open_house(root) as found:
        yield found


def purge(instance: dg.DagsterInstance, root: Path, **ago: float) -> int:
    return quirks.purge_events(
        instance,
        names.warehouse_name(str(root)),
        datetime.datetime.now(datetime.UTC) - datetime.timedelta(**ago),
    )


def reported(house: House) -> Counter[str]:
    """How many events Dagster holds of the tables' assets and checks, by kind."""
    found: Counter[str] = Counter()
    for table in (ORDERS, PLAIN):
        for key in (house.layout(table), names.data_key(str(house.root), table)):
            found["materialised"] += len(house.instance.fetch_materializations(key, limit=100).records)
            found["observed"] += len(house.instance.fetch_observations(key, limit=100).records)
        check = dg.AssetCheckKey(house.layout(table), names.BACKLOG_CHECK)
        storage = house.instance.event_log_storage
        found["checked"] += len(storage.get_asset_check_execution_history(check, limit=100))
    return found


def purge_keeps_the_newest(house: House) -> None:
    """Reports three commits of two tables; purged, the newest event of each kind is left, and ticks go on as before."""
    tables = [house.warehouse.table(name) for name in (ORDERS, PLAIN)]
    house.tick(names.SORTED_RUN_SENSOR)
    for _ in range(2):
        for table in tables:
            commit(table)
        house.tick(names.SORTED_RUN_SENSOR)
    strange = dg.AssetKey(["elsewhere", "shop", "orders"])
    for number in range(3):
        house.instance.report_runless_asset_event(dg.AssetObservation(strange, metadata={"number": number}))
    before = reported(house)
    assert before["checked"] == before["materialised"] - 2 == 6
    assert purge(house.instance, house.root, hours=1) == 0
    assert reported(house) == before

    versions = house.instance.get_latest_data_version_record(names.data_key(str(house.root), ORDERS))
    assert purge(house.instance, house.root, hours=-1) > 0
    left = reported(house)
    assert left["checked"] == 2, "one of each check"
    assert left["materialised"] == 4, "of data and layout"
    assert left["observed"] <= 2
    assert purge(house.instance, house.root, hours=-1) == 0
    assert len(house.instance.fetch_observations(strange, limit=10).records) == 3, "somebody else's"
    assert house.instance.get_latest_data_version_record(names.data_key(str(house.root), ORDERS)) == versions
    assert house.instance.get_materialized_partitions(names.data_key(str(house.root), ORDERS)) == {"dt=a"}
    house.load()
    assert not [event for event in house.tick(names.SORTED_RUN_SENSOR).asset_events if "data" in str(event.asset_key)]


def test_purging_keeps_the_newest_of_each_kind_and_what_is_somebody_else_s(house: House) -> None:
    purge_keeps_the_newest(house)


def test_these_tests_are_of_the_version_that_is_installed() -> None:
    assert dg.__version__ == DAGSTER, (
        "look at orchestration/quirks.py and orchestration/launcher.py again, then change the number"
    )


def test_nothing_else_leans_on_dagster_s_inside() -> None:
    leaning = {
        path.relative_to(ROOT).as_posix()
        for folder in ("orchestration", "assets", "checks", "lsm_core")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"(from|import) dagster\._", path.read_text())
    }
    assert leaning == {"orchestration/quirks.py", "orchestration/launcher.py"}
