"""Groups of ranks, and the collectives that move bytes between them."""
