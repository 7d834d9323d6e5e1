"""The platform: a Dagster code location in which every table and partition is an asset that sensors, ops and checks look after.

Rooms, low to high: ``policies`` and ``resources`` (what to do and with what), ``names``, ``partitions`` and ``metadata``
(how Dagster sees a table), ``ops`` (observe, plan, apply, verify, record), then, above ``assets`` and ``checks``, ``jobs``,
``sensors``, ``schedules`` and ``definitions``. Importing it loads neither pyspark nor great_expectations.
"""
