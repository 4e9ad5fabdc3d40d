"""The command ``shardwise``, one module a command; ``options``, ``pages`` and ``runs`` have what commands share."""
