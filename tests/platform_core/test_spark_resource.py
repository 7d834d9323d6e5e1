"""SparkResource: the session is dagster-pyspark's, made from `spark_config`; what cannot be a setting is named before Spark starts."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from dredge.platform_core.resources import SparkResource
from lsm_core.errors import InvalidOption


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The settings from which sessions were made; no JVM starts."""
    import dagster_pyspark.resources as theirs
    import pyspark.sql

    settings: list[dict[str, str]] = []

    def session(config: dict[str, str]) -> Any:
        settings.append(config)
        return mock.MagicMock()

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("DREDGE_SPARK_REMOTE", raising=False)
    monkeypatch.setattr(theirs, "spark_session_from_config", session)
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", classmethod(lambda _: None))
    monkeypatch.setattr("lsm_core.spark.table_reader.require_workers", lambda _: None)
    monkeypatch.setattr("lsm_core.spark.writer_modes.hand_on_modes", lambda *_: None)  # a mock has no writer's class
    monkeypatch.setattr("lsm_core.spark.session.socket.create_connection", mock.MagicMock())
    return settings


def test_dagster_pyspark_makes_the_session_from_the_engine_s_settings_and_those_of_spark_config(
    created: list[dict[str, str]],
) -> None:
    resource = SparkResource(spark_config={"spark": {"driver": {"memory": "4g"}}, "spark.sql.shuffle.partitions": 3})
    session = resource.session()
    (settings,) = created
    assert (settings["spark.driver.memory"], settings["spark.sql.shuffle.partitions"]) == ("4g", "3")
    assert (settings["spark.master"], settings["spark.sql.session.timeZone"]) == ("local[2]", "UTC")
    made = resource.pyspark()
    assert type(made).__name__ == "LazyPySparkResource"
    assert made.spark_config == settings
    assert resource.session() is session is made.spark_session
    assert len(created) == 1


def test_a_cluster_or_a_server_is_a_setting_too(created: list[dict[str, str]]) -> None:
    SparkResource(spark_config={"spark.master": "spark://box:7077"}).session()
    assert created[-1]["spark.master"] == "spark://box:7077"
    assert "spark.driver.host" not in created[-1], "a cluster's workers must find the driver"
    remote = SparkResource(spark_config={"spark.remote": "sc://box:15002", "spark.sql.shuffle.partitions": 3})
    session = remote.session()
    assert created[-1] == {"spark.remote": "sc://box:15002", "spark.app.name": "dredge"}
    session.conf.set.assert_any_call("spark.sql.shuffle.partitions", "3")


@pytest.mark.parametrize(
    ("config", "remote", "said"),
    [
        ({"executor.memory": "4g"}, "", "'spark_config' cannot be 'executor.memory'"),
        ({"spark.executor.cores": [4]}, "", r"'spark.executor.cores' cannot be \[4\]"),
        ({"spark.executor.memory": "4g"}, "sc://box", "'spark_config' cannot be 'spark.executor.memory'.*Connect"),
        ({"spark.remote": "sc://other/;token=x"}, "sc://box", "'spark.remote' cannot be 'sc://other'; .*sc://box"),
    ],
)
def test_what_is_no_setting_is_named_before_a_session_is_made(
    config: dict[str, Any], remote: str, said: str, created: list[dict[str, str]]
) -> None:
    with pytest.raises(InvalidOption, match=said):
        SparkResource(remote=remote, spark_config=config).session()
    assert created == []


def test_the_environment_hands_settings_to_ticks_and_runs() -> None:
    made = SparkResource.from_environment({"DREDGE_SPARK_CONFIG": '{"spark": {"driver": {"memory": "4g"}}}'})
    assert made.spark_config == {"spark.driver.memory": "4g"}
    for wrong in ("[1]", "{", '{"memory": 1}'):
        with pytest.raises(InvalidOption):
            SparkResource.from_environment({"DREDGE_SPARK_CONFIG": wrong})


def test_the_session_of_this_process_is_used_again_with_the_settings_that_it_can_still_take(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        session = SparkResource(spark_config={"spark.sql.shuffle.partitions": "3"}).session()
        assert session.conf.get("spark.sql.shuffle.partitions") == "3"
        assert session.sparkContext is spark.sparkContext
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
