"""Platform: a Dagster code location with assets, checks, sensors and jobs for every table and partition.

It is the top package. Its rooms, low to high: ``ops`` (observe, plan, apply, verify, record; retention), ``jobs``,
``sensors`` and ``verbs``, and ``definitions``, which joins them with ``assets`` and ``checks``. Decisions are in
`platform_core.policies`, and work on tables in `lsm_core`. Importing it loads neither pyspark nor great_expectations.
Begin with ``definitions``.
"""
