"""Is a hand-written typing rule true? Its function runs on every rank, and numbers decide."""
