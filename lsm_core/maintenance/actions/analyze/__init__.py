"""Statistics for query planners: rows and columns are counted; a snapshot of kind ANALYZE references the result."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class Analyze(BuiltInAction):
    """Action "analyze"."""

    name = "analyze"
    verb = "analyze"
    help = "Count rows and values of columns for query planners: a snapshot of kind ANALYZE with statistics."
    arguments = (Argument("columns", ArgumentKind.COLUMNS, "Only these columns; default: all that have statistics."),)
    commits = True
    items = ("actions.analyze.analyzing.AnalyzeItem",)
    planned_by = "actions.analyze.analyzing.plan_analysis"
    applied_by = "actions.analyze.analyzing.apply_analysis"
    report = "actions.analyze.analyzing.AnalyzeReport"


ACTION = Analyze()
