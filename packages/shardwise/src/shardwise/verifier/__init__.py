"""Does a program compute on a mesh what it computes on one rank? Runs both for real and compares them in numbers."""
