"""The instance of Dagster asks its storage once whether check results can be kept, and is otherwise Dagster's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckInstanceSupport
from dagster._core.storage.event_log import SqlEventLogStorage

from dredge.orchestration.instance import FleetInstance
from dredge.orchestration.verbs.dagster_process import INSTANCE


def test_the_storage_is_asked_once_and_again_only_while_the_table_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True]
    asked = []

    def ask(_: object) -> bool:
        asked.append(answers[min(len(asked), 1)])
        return asked[-1]

    shutil.copyfile(INSTANCE, tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance, FleetInstance)
        monkeypatch.setattr(SqlEventLogStorage, "supports_asset_checks", property(ask))
        support = [instance.get_asset_check_support() for _ in range(5)]
    assert support == [AssetCheckInstanceSupport.NEEDS_MIGRATION, *[AssetCheckInstanceSupport.SUPPORTED] * 4]
    assert asked == [False, True]


def test_another_process_opens_the_same_instance_with_dagsters_own_folders(tmp_path: Path) -> None:
    shutil.copyfile(INSTANCE, tmp_path / "dagster.yaml")
    key = dg.AssetKey(["warehouse", "shop", "orders"])
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        with dg.DagsterInstance.from_ref(instance.get_ref()) as other:
            assert isinstance(other, FleetInstance)
            assert other.get_latest_materialization_event(key) is not None
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as plain:
        assert type(plain) is dg.DagsterInstance
        assert plain.get_latest_materialization_event(key) is not None
