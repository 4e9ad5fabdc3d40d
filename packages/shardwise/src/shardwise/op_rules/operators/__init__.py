"""The op rules, one module per family of operators, by what they do to dims.

every element for itself   elementwise, casting, masked
sums over dims             contraction, convolution, reduction, losses
one dim mixed, and kept    scans, normalisation, attention, recurrent, fourier, linear_algebra
dims regrouped, cut, put   views, slicing, repeating, joining
elements by position       indexing, gathering, lookups
tensors out of nothing     factories, random_ops
no tensor comes of it      inspection
many tensors, functions    optimizer, control_flow
not followed by dims       sparse_quantised
"""
