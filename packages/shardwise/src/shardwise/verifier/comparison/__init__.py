"""Are the numbers of a mesh those of one rank? By declared layouts, by those that are true, or by digests.

all records, in order      compare
two tensors                difference, value_comparison, tolerance, spread, steadiness
of declared types          layouts, held_parts
of no declared type        observed, observed_parameters, alignment, copied_parts
where a rank's part lies   places, traces
data and draws             micro_batches, counted_anew, shared_data, shared_draws
gradients                  backward_order, clipped_gradients, local_training
what is told               numbers, hints, notes, partings
"""
