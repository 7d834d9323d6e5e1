"""Maintenance as Dagster ops, thin wrappers around the engine: `layout_ops` (observe, plan, apply, verify, record) and `retention_op`;
`each_table` is how an op goes over all of them.

Ops hand JSON to each other, so a run's storage holds text that people can read. Each op may run again: apply looks first
whether its plan was carried out already.
"""
