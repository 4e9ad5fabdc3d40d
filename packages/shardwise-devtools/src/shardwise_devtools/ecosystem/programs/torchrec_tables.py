"""Embeddings of torchrec split over ranks by its DistributedModelParallel, under a dense layer: two steps."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper

options = argparse.ArgumentParser()
options.add_argument("--sharding", default="table_wise")
asked = options.parse_args()
FEATURES = ("user", "item")


@torch.no_grad()
def filled(table):
    """Values as of a checkpoint: a rank draws those of its own tables alone."""
    values = torch.randn(table.shape, generator=torch.Generator().manual_seed(2))
    return table.copy_(0.1 * values) if table.device.type != "meta" else table


class Model(nn.Module):
    """The pooled embeddings of two features, and what a layer makes of them and the dense ones."""

    def __init__(self):
        super().__init__()
        tables = [
            EmbeddingBagConfig(
                name=f"t_{name}", embedding_dim=8, num_embeddings=32, feature_names=[name], init_fn=filled
            )
            for name in FEATURES
        ]
        self.sparse = EmbeddingBagCollection(tables=tables, device=torch.device("cpu"))
        self.over = nn.Sequential(nn.Linear(16 + 4, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, sparse):
        pooled = self.sparse(sparse)
        return self.over(torch.cat([pooled.values(), dense], 1)).squeeze(-1)


dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
model = Model()
apply_optimizer_in_backward(torch.optim.SGD, model.sparse.parameters(), {"lr": 0.1})
constraints = {f"t_{name}": ParameterConstraints(sharding_types=[asked.sharding]) for name in FEATURES}
planner = EmbeddingShardingPlanner(topology=Topology(world_size=size, compute_device="cpu"), constraints=constraints)
sharders = [EmbeddingBagCollectionSharder()]
plan = planner.collective_plan(model, sharders, dist.group.WORLD)
model = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)
dense_parameters = dict(model.named_parameters())
optimizer = KeyedOptimizerWrapper(
    {name: one for name, one in dense_parameters.items() if "over" in name}, lambda p: torch.optim.SGD(p, lr=0.1)
)
generator = torch.Generator().manual_seed(1)
for step in range(2):
    dense, labels = torch.randn(8, 4, generator=generator), torch.rand(8, generator=generator).round()
    ids = torch.randint(0, 32, (2, 8, 3), generator=generator)
    mine = ids.chunk(size, 1)[rank]
    lengths = torch.full((2 * mine.shape[1],), 3, dtype=torch.int32)
    bags = KeyedJaggedTensor(keys=list(FEATURES), values=mine.flatten(), lengths=lengths)
    logits = model(dense.chunk(size)[rank], bags)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.chunk(size)[rank])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
