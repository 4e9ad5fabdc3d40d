"""PyTorch's own large modules under data parallelism: attention, transformer encoder, LSTM, GRU, embedding bag."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import shardwise as spmd
from shardwise import P, R, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16, padding_idx=0)
        self.bag = nn.EmbeddingBag(50, 16, mode="sum")
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lstm = nn.LSTM(16, 8, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.norm = nn.GroupNorm(4, 16)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(16, 5))

    def forward(self, tokens, lengths):
        padding = tokens == 0
        x = self.embedding(tokens)
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = x + self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        x = self.encoder(x, mask=causal.isinf(), src_key_padding_mask=padding)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        x, (state) = self.gru(x)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        bag = self.bag(tokens)
        return self.head(x.mean(1) + state[-1] + bag)


with spmd.set_current_mesh(mesh):
    model = Everything()
    for parameter in model.parameters():
        spmd.assert_type(parameter, {"dp": R})
    rows = [torch.randint(1, 50, (length,)) for length in (5, 7, 3)]
    tokens = spmd.assert_type(pad_sequence(rows, batch_first=True), {"dp": V})
    lengths = torch.tensor([5, 7, 3])
    out = model(tokens, lengths)
    loss = spmd.reinterpret(out.logsumexp(-1).mean(), "dp", src=V, dst=P)
    loss.backward()
    model.eval()
    with torch.no_grad():
        model(tokens, lengths)
    print([name for name, _ in model.named_parameters()][:2])
