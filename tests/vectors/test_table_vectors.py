"""Whole tables through the public API: create, write, compact, query, as Paimon's own tests want them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core import Catalog
from lsm_core.clock import FixedClock
from lsm_core.errors import DredgeError
from tests.vectors.cases import Case, cases, require_known
from tests.vectors.scenario import Scenario

START = 1_800_000_000_000


@pytest.mark.parametrize("case", cases("table_sql"))
def test_table_sql(case: Case, tmp_path: Path) -> None:
    """Runs the steps up to the first that needs what is not there yet; a table that does must be refused by that name."""
    require_known("table_sql", case)
    catalog = Catalog(tmp_path, clock=FixedClock(START))
    catalog.create_database("db")
    scenario = Scenario(catalog, case)
    if "expect_create_error" in case:
        with pytest.raises(DredgeError):
            scenario.create_and_write()
        return
    scenario.run_all()
