"""Do all ranks issue the same collectives? Traces of them, replayed and compared.

what a rank asks           calls, c10d_calls, collective_trace, kept_calls, transitions_told, object_collectives
the ranks side by side     rank_processes, child_link, delivery
where they part ways       matching, replay, findings
values that must be equal  expressions, expression_recorder, congruence
what it costs              collective_costs, links_used, moves_in_a_row, cheaper_moves, overlap, schedule, steps
"""
