"""Avro, for manifests and for data files alike: blocks, codecs, schemas by Paimon's conventions, columns to records and back.

Columns are encoded whole. No library decodes Avro into columns by Paimon's logical types, and a record's length is known only by
reading it, so fastavro decodes record by record, in compiled code and in pieces of bounded size. (DataFusion reads large
manifests faster still: `lsm_core.metadata.manifests`.)
"""
