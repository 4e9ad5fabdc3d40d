"""How collectives are checked, typed and raw, and contractions that leave a pending sum."""
