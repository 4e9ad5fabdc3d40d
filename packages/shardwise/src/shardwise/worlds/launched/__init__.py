"""Ranks that a launcher has started, each a process, on whatever machines and devices there are.

``channel``  how they exchange messages beside the program's own groups.
``watch``    who is still there, and what is told when one is not.
``job``      what they do together: gather results, ask for more, end alike.
``rank``     what the program finds on one of them.
"""
