"""What torch's own metadata says of operators, written down for the op rules."""
