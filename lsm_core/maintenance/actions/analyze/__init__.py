"""Statistics for planners: rows and columns are counted, and a snapshot of kind ANALYZE names the file that tells."""

from __future__ import annotations

from lsm_core.maintenance.action import Argument, ArgumentKind
from lsm_core.maintenance.actions import BuiltInAction


class Analyze(BuiltInAction):
    """The action "analyze"."""

    name = "analyze"
    verb = "analyze"
    help = "Count rows and look at columns, for planners: a snapshot of kind ANALYZE with statistics."
    arguments = (
        Argument("columns", ArgumentKind.COLUMNS, "Only these columns; default: all that statistics can tell of."),
    )
    commits = True
    items = ("actions.analyze.analyzing.AnalyzeItem",)
    planned_by = "actions.analyze.analyzing.plan_analysis"
    applied_by = "actions.analyze.analyzing.apply_analysis"
    report = "actions.analyze.analyzing.AnalyzeReport"


ACTION = Analyze()
