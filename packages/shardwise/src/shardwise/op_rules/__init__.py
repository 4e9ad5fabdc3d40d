"""What each operator does to types: op rules as data, and how they propagate. Loads without torch."""
