"""Words for counts, bytes, times, ranks and colours, and what may not stand in a text."""
