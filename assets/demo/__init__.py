"""The demo: a year of New York flights, its tables, events, clock and right answers.

No other room knows a table name of the demo; the platform treats its warehouse like any other.
"""
