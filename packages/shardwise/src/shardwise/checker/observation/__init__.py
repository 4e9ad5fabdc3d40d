"""Types that nobody has written: what wrappers and torch's own marks say of parameters and batches."""
