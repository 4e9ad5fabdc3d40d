"""How a command runs a program and ends: one rank or several, recorded, watched, fixed, with progress."""
