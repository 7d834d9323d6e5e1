"""Sort compaction of append tables without buckets.

A partition's files are rewritten in an order that lets filters skip files.

Sampled keys cut the partition into ranges (`ranges`). Rows are distributed over them, and spilled where they do not
fit; each range is sorted (`sorting`) and written to rolling files (`rewrite`).
"""
