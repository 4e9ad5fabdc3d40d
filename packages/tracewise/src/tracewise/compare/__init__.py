"""Two runs beside each other: what is new, what is gone, what takes longer, what was compiled to something else."""
