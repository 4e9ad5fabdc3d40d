"""Numeric truth: is a claimed type right, forward and backward?

operators                  local_types, sharded_types, global_types, random_types
autograd functions         function_runs, function_transition, function_shards, function_typings,
                           declared_locally, derivative
functions of ranks         simulated_ranks/, public_transitions, rank_numbers
whole tensors              reassemble, observed_layout
what is tried and equal    trial_values, rounding
"""
