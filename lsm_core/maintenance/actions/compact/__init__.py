"""Compaction: merge files of buckets that need it, or sort files of append tables; verified, in one COMPACT commit."""
