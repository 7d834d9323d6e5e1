"""The command line: thin verbs over the Table facade; it imports neither pyspark nor dagster."""
