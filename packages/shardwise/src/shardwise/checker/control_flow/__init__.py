"""Operators that run functions of the program: cond, while_loop, scan and map."""
