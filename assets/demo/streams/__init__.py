"""Event streams: the rows of all commits of each demo table, in order, made from real files by the scenario's rules."""
