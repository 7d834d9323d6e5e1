"""Where the values of one row come from: the versions of a key, and which of them supplied each column, and why."""

from __future__ import annotations

from lsm_core.maintenance.row_story.explain import explain_row
from lsm_core.maintenance.row_story.story import ColumnStory, RowStory, RowVersion

__all__ = ["ColumnStory", "RowStory", "RowVersion", "explain_row"]
