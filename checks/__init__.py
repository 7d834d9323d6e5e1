"""Asset checks: conditions that block maintenance, the state of the file layout, and the rules of the data.

The checks of the engine are in `lsm_core.maintenance.checks`. This package only turns their reports into Dagster's
results, and adds the checks that need Spark or great-expectations. Begin with `definition`.
"""

from __future__ import annotations

from checks.data_checks import data_checks
from checks.layout_checks import layout_checks
