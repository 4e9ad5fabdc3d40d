"""From an op rule and operand placements to result placements, along one mesh axis."""
