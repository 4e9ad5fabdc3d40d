"""Checks for other programs: the language server of editors, and tools for coding agents."""
