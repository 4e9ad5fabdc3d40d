"""Which part of a whole value a rank holds, in which order, and how long: what is remembered beside a type."""
