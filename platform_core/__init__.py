"""Base of the platform, which assets, checks and orchestration share: names, policies, resources and table health.

``names``, ``table_card`` and ``health`` are names, description and state of a table. ``policies`` decide, ``resources``
open the warehouse, and ``metadata`` and ``tree_picture`` show reports in the Dagster UI. ``obstacles`` are the reasons
to stop maintenance. ``dagster_internals`` has the workarounds for Dagster. Importing it loads neither pyspark nor
great_expectations.
"""

import gc

gc.set_threshold(100_000, 20, 20)
"""Threshold of the garbage collector. Objects of imports and definitions live as long as the process.

With Python's default of 700, the collector visits them repeatedly, which takes a seventh of the import time.
"""
