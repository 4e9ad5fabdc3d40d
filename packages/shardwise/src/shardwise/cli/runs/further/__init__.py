"""What a program is run for once more, when one run has left something open.

how it is run again        further_run
with global types          global_opinion, with numbers_elsewhere for the scale of what the program writes
on other ranks             data_opinion, compared_ranks
"""
