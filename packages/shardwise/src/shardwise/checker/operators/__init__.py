"""How ordinary operators are checked, and those with a rule of their own beside them.

every operator             ordinary, judging, known_calls
operators with a handler   factories, random_ops, foreach, running_statistics, value_reads, sizes, given_sizes
what is written            write_destination, gradient_writes, local_norm, buffer_filling, parts_written, parted_memory
which part of the whole    own_parts, listed_pieces, passed_pieces, micro_batches, row_orders, merged_rows,
                           varying_lengths
what is not there yet      in_flight
what has left torch        foreign_numbers
"""
