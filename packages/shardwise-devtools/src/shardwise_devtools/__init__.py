"""What examines shardwise itself: the sweep over PyTorch's op database, its report, and mutants of programs."""
