"""What a tensor carries: its tag, what it holds of a DTensor, its memory, what its generator promises.

its type                   tagging, plain_types, memory_pieces, element_orders
tags that say more         own_lengths, own_positions, reordered, zeros
of what is derived          derived_types
for weak references        own_references
of DTensors                dtensors, dtensor_steps, local_form
in and for other places    containers, parcels, bits
random numbers             generators
"""
