"""The check that runs the suite over the data asset; on its own job, so that no compaction waits for the import."""

from __future__ import annotations

import dagster as dg

from checks.definition import declare, declined, failed
from checks.expectations.sample import read_sample
from orchestration import names
from orchestration.model import TableCard
from orchestration.resources.warehouse import WarehouseResource

DESCRIPTION = (
    "great-expectations: keys are there and unique, NOT NULL columns hold no null, in a bounded sample of merged rows."
)


def suite_check(card: TableCard, data: dg.AssetKey) -> dg.AssetChecksDefinition:
    """Return the check over ``card``'s data asset; it warns and never blocks: dirt in the source is not maintenance's doing."""

    def check(warehouse: WarehouseResource) -> dg.AssetCheckResult:
        if card.refusal is not None:
            return declined(card)
        sample = read_sample(warehouse.table(card.name))
        from checks.expectations.suite import run_suite

        outcomes = run_suite(card, sample.frame)
        lines = ["| expectation | rows that break it | |", "|---|--:|---|"]
        lines += [f"| {item.text} | {item.unexpected:,} | {'ok' if item.passed else 'broken'} |" for item in outcomes]
        metadata = {
            "rows looked at": dg.MetadataValue.int(len(sample.frame)),
            "whole table": dg.MetadataValue.bool(sample.whole),
            "expectations": dg.MetadataValue.md("\n".join(lines)),
            "rows that break an expectation": dg.MetadataValue.int(sum(item.unexpected for item in outcomes)),
        }
        broken = [item for item in outcomes if not item.passed]
        if broken:
            text = f"{broken[0].text}: {broken[0].unexpected:,} rows break it; dirt in the source, maintenance changed nothing"
            return failed(text, warn=True, **metadata)
        return dg.AssetCheckResult(
            passed=True,
            description=f"{len(outcomes)} expectations hold over {len(sample.frame):,} rows",
            metadata=metadata,
        )

    return declare(card, data, names.SUITE_CHECK, DESCRIPTION, check, whole_table=True)
