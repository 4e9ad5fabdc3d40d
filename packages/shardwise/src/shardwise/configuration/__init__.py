"""What a project decides once: ``[tool.shardwise]``, what is reported of what is found, and what is held back."""
