"""From operand types to result types: asks the op rules along every mesh axis."""
