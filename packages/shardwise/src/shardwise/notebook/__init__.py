"""Checking in notebooks: the cell magic, and how a checked cell is shown."""
