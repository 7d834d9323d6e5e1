"""The report on all tables of a warehouse, as one HTML page or as JSON.

The package takes a `FleetReport` and returns text. The only files that it reads are its own template, style and script.
"""
