"""Asset checks: conditions that block maintenance, the state of the file layout, and the rules of the data."""

from __future__ import annotations

from checks.data_checks import data_checks
from checks.layout_checks import layout_checks
