"""How do all ranks of a job run in one process? As threads of which one runs at a time, in an order that never varies.

``turns``       who runs now: a rank hands over only where it waits for others.
``rank_state``  what every rank has to itself although a process has it once: random generators, the environment.
``exchange``    what a collective moves: a table of routes.
``meeting``     who has come to which collective, do their calls agree, and who waits for whom.
``group``       the process group that PyTorch talks to.
``world``       the above put together.
"""
