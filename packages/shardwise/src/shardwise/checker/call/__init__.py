"""What one call is: its operator's operands in their roles, and the key that its verdict depends on."""
