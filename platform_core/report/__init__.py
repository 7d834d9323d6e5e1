"""The report on all tables of a warehouse, as one HTML page or as JSON.

This room is pure: it takes a `FleetReport` and returns text. What it reads from files are only its own template, style
and script.
"""
