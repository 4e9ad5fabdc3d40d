"""Edits that mend what a finding is about, one module for each family of findings; whoever reports asks for them.

Nothing here is sure of the numbers: ``check --fix`` makes what two commands prove, and offers the rest as a choice.

how a program says it      expressions
annotations                annotations, declarations
pending sums and losses    pending_sums, losses
gradients                  gradient_sums, gradient_scales, scales, norms, buckets
calls                      collective_calls, waits, random_draws, pieces
what is written in place   writes
"""
