"""Command line: thin verbs over the Table facade. The package imports neither pyspark nor dagster.

A verb parses arguments, calls the facade and prints. Rules of maintenance, and access to files of a table, belong to
the engine. Begin with `app`, which selects the verb; `render` prints tables and JSON.
"""
