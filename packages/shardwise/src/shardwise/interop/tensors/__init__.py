"""What a tensor carries: its tag, what it holds of a DTensor, its memory, what its generator promises."""
