"""Compaction: merge the files of buckets, or sort the files of append tables, in one verified COMPACT commit."""
