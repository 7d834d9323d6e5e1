"""Dagster ops for maintenance, thin wrappers around the engine.

`layout_ops` has the ops of a layout asset (observe, plan, apply, verify, record). `table_ops` and `warehouse_ops`
have the ops of the jobs. `each_table` runs an op over many tables.

Ops pass JSON to each other, so the storage of a run holds readable text. Each op may run again: apply first checks
whether its plan was already applied.
"""
