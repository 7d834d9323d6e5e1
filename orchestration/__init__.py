"""The platform: a Dagster code location in which every table and partition is an asset that sensors, ops and checks look after.

Rooms, low to high: ``names``, ``table_card`` and ``health`` (what a table is called, what it is, how it stands); ``policies``,
``resources``, ``partitions``, ``metadata`` and ``blocked``; ``ops`` (observe, plan, apply, verify, record; retention); then, above
``assets`` and ``checks``, ``jobs``, ``sensors`` and ``definitions``. Importing it loads neither pyspark nor great_expectations.
"""

import gc

gc.set_threshold(100_000, 20, 20)
"""Nearly all that the imports and the definitions make lives as long as the process: with Python's 700 the collector looks at it again and again, a seventh of the time of the imports."""
