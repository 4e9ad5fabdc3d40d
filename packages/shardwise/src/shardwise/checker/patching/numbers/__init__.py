"""Numbers of ranks: what a program asks for as a plain number, and computes with, says of which ranks it is true.

what is asked            group_sizes, rank_numbers
what is computed of it   number_calls, seeds
"""
