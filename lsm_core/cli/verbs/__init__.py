"""The verbs, by what they are for: looking, maintaining, and the trash."""
