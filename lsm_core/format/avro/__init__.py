"""Avro for manifests and data files.

Blocks, codecs, schemas by Paimon's conventions, conversion between columns and records.

Columns are encoded as a whole. No library decodes Avro into columns by Paimon's logical types, and the length of a
record is known only after reading it. So fastavro decodes record by record, in compiled code and in pieces of bounded
size. (DataFusion reads large manifests even faster: `lsm_core.metadata.manifests`.)
"""
