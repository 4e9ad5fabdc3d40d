"""All ranks of a job on one machine: fake, in one process, or a process each.

what all have in common    world, failures, seeding
one rank, others imagined  fake, imagined_exchange, absent_objects, receive_source
all in this process        in_process/
a process each             processes, real_rank, waiting, standstill, flight_recorder
ranks of a launcher        launched/
"""
