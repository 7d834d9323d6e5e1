"""Platform: a Dagster code location with assets, checks, sensors and jobs for every table and partition.

Rooms, low to high: ``names``, ``table_card`` and ``health`` (names, description and state of a table); ``policies``,
``resources``, ``partitions``, ``metadata`` and ``blocked``; ``ops`` (observe, plan, apply, verify, record;
retention); then, above ``assets`` and ``checks``, ``jobs``, ``sensors`` and ``definitions``. Importing it loads
neither pyspark nor great_expectations.
"""

import gc

gc.set_threshold(100_000, 20, 20)
"""Threshold of the garbage collector. Objects of imports and definitions live as long as the process.

With Python's default of 700, the collector visits them repeatedly, which takes a seventh of the import time.
"""
