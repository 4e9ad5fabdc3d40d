"""One call of torch or of ours: its operator's name, how it is seen, how it is logged and how its errors leave."""
