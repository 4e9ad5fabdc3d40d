"""How ordinary operators are checked, and those with a rule of their own beside them."""
