"""Compaction: merge the files of buckets, or sort the rows of partitions, verify the result and commit it."""
