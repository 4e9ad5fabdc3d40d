"""What torch hides from function modes, one module per part of the library."""
