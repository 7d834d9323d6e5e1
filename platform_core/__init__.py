"""Base of the platform, which assets, checks and orchestration share: names, policies, resources and table health.

``names``, ``table_card`` and ``health`` define the Dagster names, the description and the state of a table.
``policies`` decide about maintenance, ``resources`` open the warehouse, and ``metadata`` and ``tree_picture`` show
reports in the Dagster UI. ``obstacles`` are the reasons to stop maintenance. ``dagster_internals`` lists the private
names of Dagster in use with their reasons, and ``op_templates`` declare the ops of many tables. No asset, check, job or
sensor is defined here. Importing ``dredge.platform_core`` loads neither pyspark nor great_expectations.
"""

if __name__ == "platform_core":  # a second copy of every module would exist beside that of `dredge`
    raise ImportError("`platform_core` is now `dredge.platform_core`: rename it in imports and in Dagster's YAML files")
