"""The sweep: every operator of PyTorch's op database, the checker's claims about it held against the numbers."""
