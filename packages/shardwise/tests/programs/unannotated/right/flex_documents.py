# Scores of packed documents, no gradients: flex attention with a block mask, heads over tp. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, DIM, LENGTH = 4, 16, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(HEADS * DIM, HEADS * DIM, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * DIM, HEADS * DIM)

    def forward(self, x, mask):
        q, k, v = (f(x).unflatten(-1, (-1, DIM)).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = flex_attention(q, k, v, block_mask=mask)
        return self.o(out.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, HEADS * DIM)
        self.attention = Attention()
        self.norm = nn.LayerNorm(HEADS * DIM)
        self.out = nn.Linear(HEADS * DIM, 50)

    def forward(self, ids, documents):
        def same_document(b, h, q, kv):
            return (documents[b, q] == documents[b, kv]) & (q >= kv)

        mask = create_block_mask(same_document, ids.shape[0], None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=16)
        x = self.embed(ids)
        return self.out(self.norm(x + self.attention(x, mask)))


@torch.inference_mode()
def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = 2 if world == 4 else 1
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(12)
    with torch.inference_mode(False):
        model = Model()
        plan = {name: ColwiseParallel() for name in ("q", "k", "v")} | {"o": RowwiseParallel()}
        parallelize_module(model.attention, mesh["tp"], plan)
    model.requires_grad_(False).eval()
    me, n = mesh["dp"].get_local_rank(), mesh["dp"].size()
    total = torch.zeros(())
    for step in range(2):
        gen = torch.Generator().manual_seed(step)
        ids = torch.randint(50, (4, LENGTH + 1), generator=gen)
        documents = (torch.rand(4, LENGTH, generator=gen) < 0.1).cumsum(1)
        ids, documents = ids.chunk(n)[me], documents.chunk(n)[me]
        out = model(ids[:, :-1], documents)
        total += nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
    dist.all_reduce(total, group=mesh["dp"].get_group())
    if dist.get_rank() == 0:
        print(f"perplexity {(total / n / 2).exp().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
