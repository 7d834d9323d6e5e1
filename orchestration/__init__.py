"""Platform: a Dagster code location with assets, checks, sensors and jobs for every table and partition.

This is the top package. Its modules, low to high: ``ops`` (observe, plan, apply, verify, record; retention), ``jobs``,
``sensors`` and ``verbs``, and ``definitions``, which adds ``assets`` and ``checks``. Decisions are in
`platform_core.policies`, and work on tables is in `lsm_core`. Importing ``orchestration`` loads neither pyspark nor
great_expectations. Begin with ``definitions``.
"""
