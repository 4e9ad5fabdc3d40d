"""Types of gradients: where they come from, what they owe, and the optimizer's gate.

where a pass begins        loss, forward_derivatives
while it runs              backward_pass, autograd_graph, gradient_hooks, conflicts, unseen_writes
what a gradient is         gradient_types, gradient_buckets, sharded_gradients, replicas
who reads and takes it     gradient_reads, unjudged_calls, optimizer_gate, step_settings, own_steps,
                           averaged_later
"""
