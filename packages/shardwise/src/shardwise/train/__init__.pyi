"""The public names of ``shardwise.train``, typed; the module reads this file to know where each is defined."""

from .contract import TrainingContract as TrainingContract
from .norm import clip_grad_norm_ as clip_grad_norm_
from .norm import grad_norm as grad_norm
from .normalise import auxiliary as auxiliary
from .normalise import token_count as token_count
from .normalise import token_mean as token_mean
from .streams import RandomStream as RandomStream
from .streams import rng as rng
