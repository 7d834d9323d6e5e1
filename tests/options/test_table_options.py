"""Typed options: defaults resolve as in Paimon's CoreOptions, and what may not change cannot be changed."""

from __future__ import annotations

import pickle

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.options import CatalogOptions, TableOptions

MB = 1 << 20


def test_unset_options_have_paimons_defaults() -> None:
    o = TableOptions({})
    assert (o.bucket, o.bucket_key, o.merge_engine, o.changelog_producer) == (-1, (), "deduplicate", "none")
    assert (o.compaction_trigger, o.num_levels, o.stop_trigger, o.sort_spill_threshold) == (5, 6, 8, 9)
    assert (o.target_file_size(has_primary_key=True), o.target_file_size(has_primary_key=False)) == (128 * MB, 256 * MB)
    assert o.compaction_file_size(has_primary_key=True) == 128 * MB // 10 * 7
    assert (o.retained_min, o.retained_max, o.time_retained, o.expire_limit) == (10, None, 3_600_000, 50)
    assert (o.manifest_target_size, o.manifest_merge_min_count, o.manifest_full_threshold) == (8 * MB, 30, 16 * MB)
    assert (o.commit_max_retries, o.commit_min_retry_wait, o.commit_max_retry_wait, o.commit_timeout) == (
        10,
        10,
        10_000,
        None,
    )
    assert (o.optimization_interval, o.total_size_threshold, o.incremental_size_threshold) == (None, None, None)
    assert (o.offpeak_start, o.offpeak_end, o.offpeak_ratio, o.max_size_amplification, o.size_ratio) == (
        -1,
        -1,
        0,
        200,
        1,
    )
    assert (o.partition_default_name, o.partition_legacy_name) == ("__DEFAULT_PARTITION__", True)
    assert (o.stats_mode, o.thin_mode, o.write_only, o.ignore_delete, o.rowkind_field) == (
        "truncate(16)",
        False,
        False,
        False,
        None,
    )
    assert (o.delete_mode, o.get("dredge.trash-grace"), o.trash_grace_expiry) == ("two-phase", 86_400_000, 3_600_000)
    assert (o.tombstone_retention, o.order_sensitive, o.merge_budget) == (0, "closed", 256 * MB)
    assert (o.source_split_target, o.open_file_cost) == (128 * MB, 4 * MB)


def test_thresholds_follow_the_trigger() -> None:
    o = TableOptions({"num-sorted-run.compaction-trigger": "3"})
    assert (o.num_levels, o.stop_trigger, o.sort_spill_threshold) == (4, 6, 7)
    floored = TableOptions({"num-sorted-run.compaction-trigger": "9", "num-sorted-run.stop-trigger": "4"})
    assert floored.stop_trigger == 9


def test_lists_of_columns_are_split_and_trimmed() -> None:
    o = TableOptions({"sequence.field": " a , b", "bucket-key": "x"})
    assert (o.sequence_field, o.bucket_key) == (("a", "b"), ("x",))


def test_immutable_options_cannot_be_overridden() -> None:
    o = TableOptions({"bucket": "4", "bucket-key": "a"}, "db.t")
    for key, value in {"bucket": "8", "merge-engine": "first-row", "bucket-key": "b", "rowkind.field": "k"}.items():
        with pytest.raises(InvalidOption, match=key):
            o.copy({key: value})


def test_repeating_an_immutable_value_changes_nothing() -> None:
    o = TableOptions({"bucket": "4"}, "db.t")
    assert o.copy({"bucket": "4", "merge-engine": "deduplicate", "write-only": "true"}).write_only


def test_a_copy_replaces_the_value_under_its_alias_too() -> None:
    assert not TableOptions({"write.compaction-skip": "true"}).copy({"write-only": "false"}).write_only


def test_none_in_a_copy_takes_the_option_away_and_its_default_counts() -> None:
    stored = TableOptions({"write.compaction-skip": "true", "target-file-size": "1 mb"}, "db.t")
    left = stored.copy({"write-only": None, "target-file-size": None, "never.set": None})
    assert not left.write_only and left.raw == {}
    assert left.target_file_size(has_primary_key=True) == 128 * MB
    with pytest.raises(InvalidOption, match=r"'bucket' of table db\.t"):
        TableOptions({"bucket": "4"}, "db.t").copy({"bucket": None})
    with pytest.raises(InvalidOption, match="snapshotid"):
        stored.copy({"scan.snapshotid": None})


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"snapshot\.num-retained\.max"):
        TableOptions({"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "5"})
    with pytest.raises(InvalidOption, match=r"commit\.min-retry-wait"):
        TableOptions({"commit.min-retry-wait": "1 min"})


def test_gentle_lookup_compaction_waits_for_twice_the_trigger_and_never_for_less_than_it() -> None:
    assert TableOptions({}).lookup_compact_interval is None
    gentle = {"lookup-compact": "gentle"}
    assert TableOptions(gentle).lookup_compact_interval == 10
    assert TableOptions({**gentle, "lookup-compact.max-interval": "3"}).lookup_compact_interval == 5
    assert TableOptions({**gentle, "lookup-compact.max-interval": "30"}).lookup_compact_interval == 30
    huge = {**gentle, "num-sorted-run.compaction-trigger": str(2**31 - 1)}
    assert TableOptions(huge).lookup_compact_interval == 2**31 - 1


def test_tables_that_look_keys_up_are_told() -> None:
    assert not TableOptions({"changelog-producer": "full-compaction"}).needs_lookup
    for key, value in (
        ("changelog-producer", "lookup"),
        ("merge-engine", "first-row"),
        ("deletion-vectors.enabled", "true"),
        ("force-lookup", "true"),
    ):
        assert TableOptions({key: value}).needs_lookup


def test_options_travel_between_processes() -> None:
    o = TableOptions({"bucket": "4"}, "db.t")
    assert pickle.loads(pickle.dumps(o)) == o


def test_a_catalog_takes_no_secrets_and_knows_table_defaults() -> None:
    with pytest.raises(InvalidOption, match="environment") as caught:
        CatalogOptions({"s3.secret-key": "hunter2"})
    assert "hunter2" not in str(caught.value)
    options = CatalogOptions({"table-default.bucket": "2", "lock-acquire-timeout": "1 min"})
    assert options.table_defaults == {"bucket": "2"}
    assert options.get("lock-acquire-timeout") == 60_000
    with pytest.raises(InvalidOption, match="metastore"):
        CatalogOptions({"metastore": "glue"})
    with pytest.raises(InvalidOption, match="managed, external"):
        CatalogOptions({"metastore": "hive", "table.type": "extern"})
    assert CatalogOptions({"metastore": "hive", "table.type": " External "}).get("table.type")


@pytest.mark.parametrize("text", ["house,token=hunter2", "house, s3.secret-key=hunter2", "house,uri=http://hunter2"])
def test_options_that_commas_join_are_refused_without_their_text(text: str) -> None:
    with pytest.raises(InvalidOption, match="commas") as caught:
        CatalogOptions({"metastore": "rest", "warehouse": text})
    assert "hunter2" not in str(caught.value)
    CatalogOptions({"metastore": "hive", "uri": "thrift://a:1,thrift://b:2", "warehouse": "/data/day=1,hour=2"})


def test_a_catalog_server_needs_no_lock(caplog: pytest.LogCaptureFixture) -> None:
    options = CatalogOptions({"metastore": "rest", "uri": "http://h", "lock.enabled": "true"})
    assert options.locking(always=True) == {}
    assert "'lock.enabled' has no effect" in caplog.text


@pytest.mark.parametrize(("text", "value"), [("false", False), (" TRUE ", True), ("0", 0), ("1", 1)])
def test_dictionaries_are_switched_as_java_switches_them_and_numbers_are_taken(text: str, value: object) -> None:
    assert TableOptions({"parquet.enable.dictionary": text}).get("parquet.enable.dictionary") is value


def test_what_is_no_switch_for_dictionaries_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"enable\.dictionary"):
        TableOptions({"parquet.enable.dictionary": "maybe"})


def test_the_general_grace_holds_for_expired_snapshots_where_it_alone_is_set() -> None:
    hour, day = 3_600_000, 86_400_000
    for options, grace in (
        ({}, hour),
        ({"dredge.trash-grace": "2 d"}, 2 * day),
        ({"dredge.trash-grace": "2 d", "dredge.trash-grace-expiry": "3 h"}, 3 * hour),
        ({"dredge.trash-grace-expiry": "3 h"}, 3 * hour),
    ):
        assert TableOptions(options).trash_grace_expiry == grace
