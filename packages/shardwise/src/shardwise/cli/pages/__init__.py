"""What ``shardwise rules`` prints of one operator: its law, its placements, and what happens to a call of it."""
