"""The static report: pages from answers. Nothing is found out here, and no text of a log reaches a page unescaped."""
