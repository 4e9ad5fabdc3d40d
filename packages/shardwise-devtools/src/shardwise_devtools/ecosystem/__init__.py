"""Training frameworks as they are released, run through shardwise: how far each gets, and what is found in it."""
