"""How do the layers make a GPT, and what are its sizes?"""

from dataclasses import dataclass

from layers import Attention, Embedding, GatedMLP, Head, RMSNorm
from parallel import Init, Parallel
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 192
    vocab: int = 256
    dropout: float = 0.0


PRESETS = {
    "tiny": GPTConfig(),
    "llama-405b": GPTConfig(layers=126, width=16384, heads=128, kv_heads=8, hidden=53248, vocab=128256),
}


class Block(nn.Module):
    def __init__(self, config: GPTConfig, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, init, parallel)
        self.attention = Attention(config.width, config.heads, config.kv_heads, init, parallel)
        self.mlp_norm = RMSNorm(config.width, init, parallel)
        self.mlp = GatedMLP(config.width, config.hidden, init, parallel, config.dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class GPT(nn.Module):
    """tokens [B, T] to logits [B x T, V], the vocabulary split over tp."""

    def __init__(self, config: GPTConfig, init: Init, parallel: Parallel) -> None:
        super().__init__()
        self.embedding = Embedding(config.vocab, config.width, init, parallel)
        self.blocks = nn.ModuleList(Block(config, init, parallel) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, init, parallel)
        self.head = Head(config.vocab, config.width, init, parallel)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.head(self.norm(x_BTD))
