"""Dagster ops for maintenance, thin wrappers around the engine.

`layout_ops` has the ops of a layout asset (observe, plan, apply, verify, record). `table_ops` and `warehouse_ops`
have the ops of the jobs. `common.process_tables` calls a function for each of many tables. No op decides about
maintenance: the plan is the engine's, and permission is from `dredge.platform_core.policies` and
`dredge.platform_core.obstacles`.

Ops pass JSON to the next op, so the storage of a run has readable text. Each op may run again: the apply op first
checks whether the plan was already applied.
"""
