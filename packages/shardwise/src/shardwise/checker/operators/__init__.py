"""How ordinary operators are checked, and those with a rule of their own beside them.

every operator             ordinary, first_calls, judging, known_calls
operators with a handler   factories, random_ops, foreach, running_statistics, value_reads, sizes, given_sizes,
                           ignored_targets
of gradients               scale_lost, counts_of_ranks, gradient_copies
of parts and their order   listed_pieces, merged_rows, parts_written, parted_memory
what is not there yet      in_flight
what has left torch        foreign_numbers
"""
