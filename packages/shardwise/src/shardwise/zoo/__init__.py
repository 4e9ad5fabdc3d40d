"""The known ways to train in parallel, each as one page that runs: beside it the program of one device that it equals.

shardwise zoo                               what there is
shardwise zoo ring_attention                the page: when to choose it, its mesh, its code
shardwise zoo ring_attention --run          on real processes, losses and gradients compared with one device
"""
