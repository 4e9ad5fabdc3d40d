"""A checked run, shown: the program with its types in the margin, and the report as one HTML file. Loads no torch."""
