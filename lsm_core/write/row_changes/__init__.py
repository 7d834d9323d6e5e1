"""Statements that change existing rows: truncate, drop partitions, delete, update, upsert; one commit each."""

from __future__ import annotations

from lsm_core.write.row_changes.append_parts import AppendChange, PartOfChange
from lsm_core.write.row_changes.assign import ComputedValues
from lsm_core.write.row_changes.keyed import DeletingWrite, KeyedChange
from lsm_core.write.row_changes.statements import (
    delete_rows,
    drop_partitions,
    merge_rows,
    require_delete,
    require_upsert,
    truncate,
    update_rows,
    upsert_rows,
)
