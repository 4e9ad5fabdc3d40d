"""Where checking is on, off or local, and what is declared for a stretch of code."""
