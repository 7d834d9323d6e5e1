"""Command line: thin verbs over the Table facade. It imports neither pyspark nor dagster."""
