"""Bytes to records: files of any packing, the grammar of the trace log, and what was wrong with them."""
