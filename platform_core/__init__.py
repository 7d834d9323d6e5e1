"""Base of the platform, which assets, checks and orchestration share: names, policies, resources and table health.

``names``, ``table_card`` and ``health`` define the Dagster names, the description and the state of a table.
``policies`` decide about maintenance, ``resources`` open the warehouse, and ``metadata`` and ``tree_picture`` show
reports in the Dagster UI. ``obstacles`` are the reasons to stop maintenance. ``dagster_internals`` has the workarounds
for Dagster. No asset, check, job or sensor is defined here. Importing ``dredge.platform_core`` loads neither pyspark
nor great_expectations.
"""

if __name__ == "platform_core":  # a second copy of every module would exist beside that of `dredge`
    raise ImportError("`platform_core` is now `dredge.platform_core`: rename it in imports and in Dagster's YAML files")

import gc

gc.set_threshold(100_000, 20, 20)
"""Threshold of the garbage collector. Objects of imports and definitions live as long as the process.

With Python's default of 700, the collector scans these objects repeatedly, which takes a seventh of the import time.
"""
