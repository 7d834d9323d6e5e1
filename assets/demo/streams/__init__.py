"""Event streams: the rows of all commits of each demo table, in order, made from real files by the scenario's rules.

Each module holds one table's stream as a pure function of the real files; `replay` writes the commits. Begin with
`flights`, whose rules the other streams share.
"""
