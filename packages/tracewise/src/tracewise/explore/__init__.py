"""The explorer: questions about tables of events, answered in a browser on this machine."""
