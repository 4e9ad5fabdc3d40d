"""From an op rule and operand placements to result placements, along one mesh axis.

a whole call               call_types, untyped_calls, operand
along one axis             local, sharded, scale, logged
along all of them          placer
dims                       dim_labels, reshaped_dims, shape_templates, global_sizes
einsums                    einsum_equation, einsum_calculus
"""
