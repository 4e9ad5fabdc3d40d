"""How one layout becomes another: what a step costs, and the search for steps after which a call is right."""
