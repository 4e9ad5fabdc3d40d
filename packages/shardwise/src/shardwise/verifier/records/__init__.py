"""What a run that is verified leaves: its tensors by name, how it ended, and where its source could have types."""
