"""The platform as people see it, in a browser's place."""
