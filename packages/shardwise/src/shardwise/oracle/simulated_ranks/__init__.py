"""A small piece of a program on several ranks, which run one after the other on this thread until all have ended."""
