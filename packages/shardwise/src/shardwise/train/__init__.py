"""The step around the model: who owes which gradient its sum, what a loss is divided by, how large gradients are, and
whose random numbers agree.
"""

from shardwise._public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
