"""Where the values of one row come from: the versions of a key, and which of them supplied each column, and why."""
