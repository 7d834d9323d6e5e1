"""The great-expectations suite: holds over good rows, names what bad rows break, and never takes its own crash for bad data."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from dredge.checks import expectations, unexpected_keys
from dredge.checks.data_checks import data_results
from dredge.checks.expectations import SuiteCrashed, read_sample, run_suite, suite_columns, suite_result
from dredge.platform_core import names
from dredge.platform_core.policies import policy_source
from dredge.platform_core.policies.policy import Expectation
from dredge.platform_core.policies.policy_files import parse_policies
from dredge.platform_core.resources import SparkResource, WarehouseResource
from dredge.platform_core.table_card import ColumnCard, TableCard
from lsm_core.errors import InvalidOption
from tests.support.platform import House, append_table, commit, keyed_table, open_house

CARD = TableCard(
    "shop.orders",
    primary_keys=("dt", "id"),
    columns=(ColumnCard("dt", "STRING NOT NULL", nullable=False, description=""), ColumnCard("id", "BIGINT NOT NULL", nullable=False, description=""), ColumnCard("v", "STRING", nullable=True, description="")),
)  # fmt: skip


def test_rows_that_break_a_rule_are_counted_by_rule() -> None:
    frame = pd.DataFrame({"dt": ["a", "a", "a", None], "id": [1, 1, 2, 3]})
    found = {item.text: (item.passed, item.unexpected) for item in run_suite(CARD, frame)}
    assert found == {"dt is never null": (False, 1), "id is never null": (True, 0), "(dt, id) is unique": (False, 2)}


def test_an_expectation_that_crashes_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    import great_expectations.expectations as gxe  # takes seconds, which the other test processes need not spend

    def broken(*_: Any) -> list[tuple[str, Any]]:
        return [("a column that is not there", gxe.ExpectColumnValuesToNotBeNull(column="nowhere"))]

    monkeypatch.setattr(expectations, "schema_expectations", broken)
    with pytest.raises(SuiteCrashed, match=r"shop.orders: expectation 'a column that is not there' crashed"):
        run_suite(CARD, pd.DataFrame({"id": [1]}))


def test_expectations_of_the_policy_count_by_their_own_severity_and_name_the_keys_that_break_them() -> None:
    frame = pd.DataFrame({"dt": ["a", "a", "b"], "id": [1, 2, 3], "v": ["x", "y", "z"]})
    declared = [
        Expectation(type="expect_column_values_to_be_in_set", kwargs={"column": "v", "value_set": ["x", "y"]}),
        Expectation(type="expect_column_values_to_not_be_null", kwargs={"column": "id"}),  # the suite has it already
        Expectation(type="expect_table_row_count_to_be_between", kwargs={"min_value": 10}, severity="warn"),
    ]
    found = {item.text.partition("(")[0]: item for item in run_suite(CARD, frame, declared)}
    broken = found["expect_column_values_to_be_in_set"]
    assert (broken.passed, broken.unexpected, broken.rows, broken.warn) == (False, 1, ("v=z, dt=b, id=3",), False)
    assert found["expect_column_values_to_not_be_null"].passed
    few = found["expect_table_row_count_to_be_between"]
    assert (few.passed, few.warn) == (False, True)
    for wrong, text in (
        (Expectation(type="expect_nothing_such"), "great-expectations has no 'expect_nothing_such'"),
        (Expectation(type="expect_column_values_to_not_be_null", kwargs={"colum": "v"}), "of the policy: .*required"),
    ):
        with pytest.raises(SuiteCrashed, match=text):
            run_suite(CARD, frame, [wrong])


def test_the_suites_of_all_tables_run_in_one_job_and_only_look_at_a_bounded_sample(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root), 3)
    commit(append_table(root), 1)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "tables:\n  shop.log: {checks: {snapshot_chain: off, pages_readable: off, tree_invariants: warn}, expectations: "
        "[{type: expect_column_values_to_be_between, kwargs: {column: id, max_value: 9}}]}\n"
    )
    with open_house(root, DREDGE_POLICIES=str(policy)) as house:
        assert len(read_sample(house.warehouse.table("shop.orders"), max_rows=10).frame) == 10
        result = house.execute(names.EXPECTATIONS_JOB)
        assert result.success
        found = {
            (item.asset_key.path[-1], item.check_name): (item.passed, item.description)
            for item in result.get_asset_check_evaluations()
        }
        assert found["orders", names.SUITE_CHECK] == (True, "5 expectations hold over 100 rows")
        passed, text = found["log", names.SUITE_CHECK]
        assert not passed
        assert "(column='id', max_value=9): 40 unexpected rows; the source data are wrong" in text
        with pytest.raises(SuiteCrashed, match="names column 'nowhere'; the columns are dt, id, v"):
            suite_columns(
                house.warehouse.table("shop.log"), [Expectation(type="expect_x", kwargs={"column": "nowhere"})]
            )
        rules = {"snapshot_chain", "pages_readable", "unique_keys", "equal_sequence_numbers", "merge_engine_rules"}
        assert {check for table, check in found if table == "orders"} == {*rules, names.SUITE_CHECK}
        assert {check for table, check in found if table == "log"} == {names.SUITE_CHECK}, "the other is switched off"
        assert [key for key, (passed, _) in found.items() if not passed] == [("log", names.SUITE_CHECK)]


@pytest.mark.parametrize(("runner", "where"), [("spark", "spark"), ("local", "here")])
def test_the_policy_says_which_rows_are_looked_at_and_without_spark_it_is_the_sample(
    runner: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SparkResource | None] = []

    def suite(
        _: object, card: TableCard, declared: object, spark: SparkResource | None, **_more: object
    ) -> dg.AssetCheckResult:
        asked.append(spark)
        return dg.AssetCheckResult(passed=True)

    data_checks = import_module("dredge.checks.data_checks")  # the package has a function of its name
    monkeypatch.setattr(data_checks, "suite_result", suite)
    commit(keyed_table(tmp_path / "wh"))
    warehouse = WarehouseResource(path=str(tmp_path / "wh"))
    policies = parse_policies("tables: {shop.orders: {expectations_on: spark}}", "p.yaml")
    card, spark = warehouse.card("shop.orders"), SparkResource(runner=runner)
    list(data_checks.data_results(warehouse, spark, card, policies.of("shop.orders"), [names.SUITE_CHECK]))
    list(data_checks.data_results(warehouse, spark, card, policies.of("shop.log"), [names.SUITE_CHECK]))
    assert asked == [spark if where == "spark" else None, None]


def test_a_rule_s_severity_is_in_the_suite_s_meta_and_a_rule_of_the_policy_replaces_that_of_the_schema() -> None:
    entries = """
tables:
  shop.orders:
    expectations:
      - {type: expect_column_values_to_not_be_null, kwargs: {column: dt}}
      - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 10}, meta: {severity: warn, owner: sales}}
      - {type: expect_column_values_to_be_in_set, kwargs: {column: v, value_set: [x]}, severity: warning}
"""
    declared = parse_policies(entries, "p.yaml").of("shop.orders").expectations
    assert [item.severity for item in declared] == ["error", "warn", "warn"]
    frame = pd.DataFrame({"dt": ["a", None], "id": [1, 2], "v": ["x", "y"]})
    batch = expectations.rows_batch(CARD, frame, declared)
    found = {item.text.partition("(")[0]: item for item in expectations.run_batches(CARD, [batch])}
    assert [(item.outcome, item.observed) for name, item in found.items() if name.startswith("expect")] == [
        ("failed", "50 % of 2 rows"),
        ("warning", "2"),
        ("warning", "50 % of 2 rows"),
    ]
    assert "dt is never null" not in found, "the policy's rule of the same column replaces it"
    metas = [expectation.meta for _, expectation, _ in batch.expected[-3:]]
    assert [meta["severity"] for meta in metas] == ["error", "warn", "warn"]
    assert metas[1]["owner"] == "sales"
    for words in ("meta: {severity: bad}", "severity: bad", "severity: [warn]"):
        with pytest.raises(InvalidOption, match="severity"):
            parse_policies(f"tables: {{a.b: {{expectations: [{{type: expect_x, {words}}}]}}}}", "p.yaml")


def test_all_keys_are_in_a_file_and_a_rule_of_the_table_says_what_was_observed(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root), 3)
    warehouse = WarehouseResource(path=str(root))
    card, places = warehouse.card("shop.orders"), expectations.SuitePlaces(keys=tmp_path / "keys")
    few = Expectation(type="expect_table_row_count_to_be_between", kwargs={"max_value": 10})
    small = Expectation(type="expect_column_values_to_be_between", kwargs={"column": "id", "max_value": 49})
    result = suite_result(warehouse, card, [small, few], places=places)
    metadata = result.metadata or {}
    file = Path(str(metadata["file with the keys"].value))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(int(line["key"]["id"]) for line in lines) == list(range(50, 100))
    assert {(line["key"]["dt"], line["severity"]) for line in lines} == {("a", "error")}
    listed = str(metadata["keys that break an expectation"].value)
    assert "20 of 50 shown; all in " in listed
    assert listed.count("id=") == 20 + 0
    assert file.stat().st_mode & 0o077 == 0, "values of rows are for the user of the platform alone"
    assert "| observed |" in str(metadata["expectations"].value)
    assert "| 0 | 100 | failed | error |" in str(metadata["expectations"].value)
    only_few = suite_result(warehouse, card, [few], places=places)
    assert only_few.description == "expect_table_row_count_to_be_between(max_value=10): observed 100"
    assert not file.exists(), "no key breaks an expectation any more"


def test_the_file_of_keys_is_bounded_and_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unexpected_keys, "MOST_BYTES", 100)
    records = [{"key": {"id": number}, "value": {"v": "\u2028x\ud800"}} for number in range(30)]
    file = unexpected_keys.write_keys(tmp_path / "a", "../db.x/../../y", records)
    assert file is not None
    assert file.parent == tmp_path / "a"
    lines = file.read_text().splitlines()
    assert json.loads(lines[-1])["note"].endswith("further lines left out: the file is at its limit")
    assert file.stat().st_size < 300
    assert sorted(file.parent.iterdir()) == [file], "no temporary file stays"


def test_the_job_takes_tables_to_look_at_and_builds_their_pages(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root), 2)
    commit(keyed_table(root, "shop.other"), 1)
    commit(append_table(root), 1)
    with open_house(root, DREDGE_DATA_DOCS_URL="https://docs.example.org/gx") as house:
        config = {"tables": ["shop.o*"], "checks": ["expectations"], "data_docs": True}
        result = house.execute(names.EXPECTATIONS_JOB, run_config=config)
        found = {item.asset_key.path[-1]: item for item in result.get_asset_check_evaluations()}
        assert {(item.check_name, item.passed) for item in found.values()} == {(names.SUITE_CHECK, True)}
        assert set(found) == {"orders", "other"}
        page = Path(str(found["orders"].metadata["data docs"].value))
        assert page.is_file()
        assert page.is_relative_to(house.instance.root_directory)
        for wrong, text in (
            ({"tables": ["shop.nothing"]}, "no table matches 'shop.nothing' .* has 3 tables"),
            (
                {"checks": ["unique"]},
                "check 'unique' of the configuration does not exist; the checks are .*unique_keys",
            ),
        ):
            failed = house.execute(names.EXPECTATIONS_JOB, run_config=wrong)
            assert not failed.success
            (failure,) = [event for event in failed.all_events if event.is_step_failure]
            assert re.search(text, str(failure.step_failure_data.error))


@pytest.mark.parametrize("damage", ["lost", "truncated", "schema"])
def test_a_table_with_an_unreadable_file_has_no_green_expectation(damage: str, tmp_path: Path) -> None:
    root = tmp_path / "wh"
    table = keyed_table(root)
    for day in ("a", "b"):
        commit(table, 1, day=day)
    with open_house(root) as house:
        assert _expectations_of(house) == (True, "5 expectations hold over 100 rows")
        (file,) = Path(table.store.root).glob("dt=b/bucket-0/*.parquet")
        if damage == "lost":
            file.unlink()
        elif damage == "truncated":
            file.write_bytes(file.read_bytes()[:200])
        else:
            (Path(table.store.root) / "schema" / "schema-0").write_text("{")
        passed, text = _expectations_of(house)
        assert not passed
        assert ("cannot be opened" if damage == "schema" else file.name) in text


def _expectations_of(house: House) -> tuple[bool, str]:
    """Run the nightly job and return the result of the expectations of ``shop.orders``."""
    result = house.execute(names.EXPECTATIONS_JOB, run_config={"tables": ["shop.orders"]})
    (found,) = [item for item in result.get_asset_check_evaluations() if item.check_name == names.SUITE_CHECK]
    return found.passed, str(found.description)


@pytest.mark.parametrize(
    "rule", ["{type: expect_nothing}", "{type: expect_column_to_exist, kwargs: {column: nowhere}}"]
)
def test_a_suite_that_crashes_leaves_no_older_green_result(rule: str, tmp_path: Path) -> None:
    root, policy = tmp_path / "wh", tmp_path / "policy.yaml"
    policy.write_text("")
    commit(keyed_table(root), 1)
    commit(append_table(root), 1)
    with open_house(root, DREDGE_POLICIES=str(policy)) as house:
        check = dg.AssetCheckKey(names.WarehouseNames.of(str(root)).data_key("shop.orders"), names.SUITE_CHECK)
        assert _expectations_of(house)[0]
        policy.write_text(f"tables: {{shop.orders: {{expectations: [{rule}]}}}}")
        crashed = house.execute(names.EXPECTATIONS_JOB)
        assert not crashed.success, "the run names what crashed"
        newest = house.instance.get_latest_asset_check_evaluation_record(check)
        assert newest is not None and newest.evaluation is not None
        assert (newest.evaluation.passed, newest.evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert str(newest.evaluation.description).startswith("not evaluated: table shop.orders: ")
        assert "expect_" in str(newest.evaluation.description)
        log = dg.AssetCheckKey(names.WarehouseNames.of(str(root)).data_key("shop.log"), names.SUITE_CHECK)
        for other in (log, dg.AssetCheckKey(check.asset_key, "unique_keys")):
            record = house.instance.get_latest_asset_check_evaluation_record(other)
            assert record is not None and record.run_id == crashed.run_id, "all other checks are evaluated"
        card, policies = house.warehouse.card("shop.orders"), policy_source(str(policy)).current()
        results = data_results(house.warehouse, SparkResource(), card, policies.of("shop.orders"), [names.SUITE_CHECK])
        assert not next(results).passed
        with pytest.raises(SuiteCrashed, match=r"shop\.orders"):
            next(results)
        policy.write_text("")
        assert _expectations_of(house)[0]
