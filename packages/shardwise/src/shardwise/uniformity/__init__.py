"""Do all ranks issue the same collectives? Traces of them, replayed and compared."""
