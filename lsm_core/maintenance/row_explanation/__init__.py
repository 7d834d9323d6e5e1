"""Origin of the values of one row: the versions of a key, and which of them supplied each column, and why."""
