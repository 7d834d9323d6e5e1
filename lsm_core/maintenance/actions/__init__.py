"""What can be done to a table, an action a file: each makes a plan from metadata and carries one out."""
