"""A program run on one rank, with a recorder that listens; what all ranks need, and what is told of a crash."""
