"""Asset checks: conditions that block maintenance, the state of the file layout, and the rules of the data.

The checks of the engine are in `lsm_core.maintenance.checks`. This package only turns their reports into Dagster's
results, and adds the checks that need Spark or great-expectations. Begin with `definition`.
"""

from __future__ import annotations

if __name__ == "checks":  # a second copy of every module would exist beside that of `dredge`
    raise ImportError("`checks` is now `dredge.checks`: rename it in imports and in Dagster's YAML files")

from dredge.checks.data_checks import data_checks
from dredge.checks.layout_checks import layout_checks
