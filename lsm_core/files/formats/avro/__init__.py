"""Avro data files by Paimon's conventions: encoded a column at a time, decoded by fastavro in pieces of bounded size.

No library decodes Avro into columns by Paimon's logical types, and a record's length is known only by reading it, so decoding
goes record by record in compiled code; Python sees lists of finished records and hands them to Arrow whole.
"""

from __future__ import annotations

from lsm_core.files.formats.avro.container import codec_of
from lsm_core.files.formats.avro.files import AvroSink, AvroSource, open_sink

__all__ = ["AvroSink", "AvroSource", "codec_of", "open_sink"]
