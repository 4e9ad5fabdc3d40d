"""The border with PyTorch: what it hides, what tensors carry, and what runs on a thread; see docs/architecture.md."""
