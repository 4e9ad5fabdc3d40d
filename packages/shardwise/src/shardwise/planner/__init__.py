"""How one layout becomes another: what a step costs, and the search for steps after which a call is right.

costs           cost, links
a plan          route, plans, alternatives
its search      problem, cuts, holdings, moves, situations, remaining, shortest
repairs         search, repairs
"""
