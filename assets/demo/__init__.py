"""The demo: a year of New York flights, its tables, events, clock and expected results.

No other package knows a table name of the demo; the platform treats its warehouse like any other. Begin with `tables`
(the schemas) and `replay` (the job that writes their commits).
"""
