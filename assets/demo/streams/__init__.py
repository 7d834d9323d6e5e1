"""What arrives: for each table of the demo the rows of all its commits, in order, made from the real files by the scenario's rules."""
