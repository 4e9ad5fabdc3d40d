"""Which layout makes what a rank holds a part of the one-rank run's value? Declared ones, or those that are true.

of declared types          declared, held_parts
of no declared type        observed, observed_parameters, alignment, copied_parts
put together               initial_weights
what nobody holds          repeated_layers
where a rank's part lies   places
data and draws             micro_batches, samples, counted_anew, padded_inputs, listed_samples, shared_data,
                           shared_draws
what trains apart          local_training
"""
