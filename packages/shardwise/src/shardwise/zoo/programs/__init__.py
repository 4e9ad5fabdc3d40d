"""One module a program: its docstring says when to choose it and what breaks it, the rest is the program."""
