"""A program run on one rank, with a recorder that listens; what all ranks need, and what is told of a crash.

who runs it                processes, one_rank, warming
what is listened to        watch, steps, initial_values, plain_parameters, swapped_data, random_draws, read_sums,
                           clip_factors, summed_losses, shared_orders, made_tensors, kept_buffers,
                           listeners (all of them)
what is changed            loading, feeding, given_draws, perturbation, used_data, own_pieces
what launched ranks repeat second_run
how it ended               crash
"""
