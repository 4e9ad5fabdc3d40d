"""What a user calls: annotations, collectives and coercions with their backward.

what a program says        annotate, queries, regions, boundary_types, randomness, remesh
what moves                 communicate, coerce, partial
from a type to a type      redistribute, whole_types, plan_steps, dtensor
how a call runs            request, recipe, sizes, kernels, functions
"""
