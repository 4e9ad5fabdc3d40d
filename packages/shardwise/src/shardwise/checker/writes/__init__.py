"""What a call writes into: its destination, a gradient, memory that parameters share, and the norm of a scaling."""
