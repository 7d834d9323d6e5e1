"""What may change while a table has snapshots, and for one reader or writer only: what files were laid out by stays."""

from __future__ import annotations

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.options import REGISTRY, PaimonVersion, TableOptions, check_change


@pytest.mark.parametrize(
    "key", sorted(name for name, key in REGISTRY.items() if key.immutable and key.kind == "boolean")
)
def test_an_immutable_switch_stays_as_it_is(key: str) -> None:
    for before, after in (("false", "true"), ("true", "false"), ("true", None)):
        with pytest.raises(InvalidOption, match=key):
            check_change({key: before}, key, after, "db.t")
    check_change({key: "true"}, key, "TRUE", "db.t")
    check_change({}, key, "false", "db.t")


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({}, "merge-engine", "first-row"),
        ({"bucket-key": "a"}, "bucket-key", "b"),
        ({"bucket-key": "a"}, "bucket-key", None),
        ({"bucket": "2"}, "bucket", "-1"),
        ({"bucket": "2"}, "bucket", "-2"),
        ({"bucket": "2"}, "bucket", None),
        ({}, "bucket", "2"),
        ({"bucket": "-2"}, "bucket", "2"),
        ({}, "deletion-vectors.enabled", "true"),
        ({"ignore-delete": "true"}, "ignore-delete", "false"),
        ({"ignore-delete": "true"}, "ignore-delete", None),
        ({"deduplicate.ignore-delete": "true"}, "ignore-delete", "false"),
        ({"ignore-update-before": "true"}, "ignore-update-before", None),
        ({"pk-clustering-override": "true", "clustering.columns": "a"}, "clustering.columns", "b"),
        ({}, "path", "/elsewhere"),
    ],
)
def test_what_snapshots_depend_on_is_refused_by_name(options: dict[str, str], key: str, value: str | None) -> None:
    with pytest.raises(InvalidOption, match=key) as caught:
        check_change(options, key, value, "db.t")
    assert "db.t" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({"bucket": "2"}, "bucket", "4"),
        ({"deletion-vectors.modifiable": "true"}, "deletion-vectors.enabled", "true"),
        ({"ignore-delete": "false"}, "ignore-delete", "true"),
        ({}, "num-sorted-run.compaction-trigger", "3"),
        ({}, "my.own.key", "x"),
        ({}, "dredge.merge-budget", "64 mb"),
    ],
)
def test_everything_else_may_change(options: dict[str, str], key: str, value: str) -> None:
    check_change(options, key, value, "db.t")


@pytest.mark.parametrize("key", ["ignore-delete", "ignore-update-before"])
@pytest.mark.parametrize("version", list(PaimonVersion))
def test_retracts_that_were_ignored_stay_so_but_until_2_1_the_option_can_be_removed(
    key: str, version: PaimonVersion
) -> None:
    with pytest.raises(InvalidOption, match=f"{key}.*no change back from true"):
        check_change({key: "true"}, key, "false", "db.t", version=version)
    if version is PaimonVersion.V2_1:
        with pytest.raises(InvalidOption, match=f"{key}.*no change back from true"):
            check_change({key: "true"}, key, None, "db.t", version=version)
    else:
        check_change({key: "true"}, key, None, "db.t", version=version)


def test_the_number_of_buckets_is_no_matter_of_one_writer() -> None:
    with pytest.raises(InvalidOption, match="alter the table"):
        TableOptions({"bucket": "2"}, "db.t").copy({"bucket": "4"})
    assert TableOptions({"bucket": "2"}, "db.t").copy({"bucket": "2", "write-only": "true"}).write_only
