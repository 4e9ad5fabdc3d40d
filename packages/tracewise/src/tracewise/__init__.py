"""tracewise: what happened in a run, from the traces that PyTorch leaves behind."""

__version__ = "0.1.0"
