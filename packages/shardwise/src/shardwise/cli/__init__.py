"""The front door: the command ``shardwise``."""
