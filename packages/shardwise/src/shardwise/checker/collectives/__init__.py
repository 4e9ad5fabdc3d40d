"""How collectives are checked, typed and raw, and contractions that leave a pending sum.

typed                      typed, planned, partial_contractions, partial_sources, mean_count
raw, as a call goes        raw, raw_operands, raw_pieces, raw_results, raw_arrivals, raw_buffers
what starts and returns    handles
backward                   differentiable, raw_backward
what comes in pieces       gathered_lists, stacked_rows, rearranged_dims, rows_exchanged
what one rank has          one_rank
around the call            divergence, next_statement
"""
