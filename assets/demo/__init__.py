"""The demo's own room: a year of New York flights, its tables, events, clock and right answers.

No other room knows a table name of the demo; everything outside treats its warehouse like anybody's.
"""
