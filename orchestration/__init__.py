"""Platform: a Dagster code location with assets, checks, sensors and jobs for every table and partition.

This is the top package. Its modules, low to high: ``ops`` (observe, plan, apply, verify, record; retention), ``jobs``,
``sensors`` and ``verbs``, and ``definitions``, which adds `dredge.assets` and `dredge.checks`. Decisions are in
`dredge.platform_core.policies`, and work on tables is in `lsm_core`. Importing ``dredge.orchestration`` loads neither
pyspark nor great_expectations. Begin with ``definitions``.
"""

if __name__ == "orchestration":  # a second copy of every module would exist beside that of `dredge`
    raise ImportError("`orchestration` is now `dredge.orchestration`: rename it in imports and in Dagster's YAML files")
