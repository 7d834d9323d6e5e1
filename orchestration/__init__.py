"""The platform: a Dagster code location in which every table and partition is an asset that sensors, ops and checks look after.

Rooms, low to high: ``names``, ``table_card`` and ``health`` (what a table is called, what it is, how it stands); ``policies``,
``resources``, ``partitions``, ``metadata`` and ``blocked``; ``ops`` (observe, plan, apply, verify, record; retention); then, above
``assets`` and ``checks``, ``jobs``, ``sensors`` and ``definitions``. Importing it loads neither pyspark nor great_expectations.
"""
