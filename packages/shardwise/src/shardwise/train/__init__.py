"""The step around the model: who owes which gradient its sum, what a loss is divided by, how large gradients are, and
whose random numbers agree.
"""

from shardwise._doors import door, listed

_NAMES = {
    **listed("shardwise.train.contract", "TrainingContract"),
    **listed("shardwise.train.norm", "grad_norm clip_grad_norm_"),
    **listed("shardwise.train.normalise", "token_count token_mean auxiliary"),
    **listed("shardwise.train.streams", "rng RandomStream"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
