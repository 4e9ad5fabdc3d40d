"""Files in the layout of other tools, for scripts that read them."""
