# 1F1B by hand: stages of a model, micro-batches, asynchronous sends. mesh: pp=4
import torch
import torch.distributed as dist
import torch.nn as nn

SEQ, DIM, VOCAB, LAYERS, MICRO, MBS = 8, 16, 24, 4, 4, 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 2 * DIM)
        self.down = nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stage(nn.Module):
    def __init__(self, index, count):
        super().__init__()
        self.first, self.last = index == 0, index == count - 1
        torch.manual_seed(42)
        embed = nn.Embedding(VOCAB, DIM)
        layers = [Layer() for _ in range(LAYERS)]
        head = nn.Linear(DIM, VOCAB)
        per = LAYERS // count
        self.embed = embed if self.first else None
        self.layers = nn.ModuleDict({str(i): layers[i] for i in range(index * per, (index + 1) * per)})
        self.head = head if self.last else None

    def forward(self, x):
        if self.first:
            x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.head(x) if self.last else x


class Pipeline:
    def __init__(self, stage, rank, size):
        self.stage, self.rank, self.size = stage, rank, size
        self.inputs, self.outputs, self.pending = [], [], []

    def send(self, tensor, dst):
        self.pending.append((dist.isend(tensor, dst=dst), tensor))

    def recv_forward(self, tokens):
        if self.rank == 0:
            return tokens
        buf = torch.empty(MBS, SEQ, DIM)
        dist.recv(buf, src=self.rank - 1)
        return buf.requires_grad_()

    def forward_step(self, tokens, targets, losses):
        x = self.recv_forward(tokens)
        y = self.stage(x)
        if self.rank == self.size - 1:
            y = nn.functional.cross_entropy(y.flatten(0, 1), targets.flatten()) / MICRO
            losses.append(y.detach())
        else:
            self.send(y.detach(), self.rank + 1)
        self.inputs.append(x)
        self.outputs.append(y)

    def backward_step(self):
        x, y = self.inputs.pop(0), self.outputs.pop(0)
        if self.rank == self.size - 1:
            y.backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.rank + 1)
            y.backward(grad)
        if self.rank > 0:
            self.send(x.grad, self.rank - 1)

    def run(self, tokens, targets):
        losses = []
        warmup = min(self.size - self.rank - 1, MICRO)
        for i in range(warmup):
            self.forward_step(tokens[i], targets[i], losses)
        for i in range(MICRO - warmup):
            self.forward_step(tokens[warmup + i], targets[warmup + i], losses)
            self.backward_step()
        for _ in range(warmup):
            self.backward_step()
        for work, _ in self.pending:
            work.wait()
        self.pending.clear()
        return losses


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, size)
    pipe = Pipeline(stage, rank, size)
    opt = torch.optim.SGD(stage.parameters(), lr=0.5)
    for step in range(3):
        torch.manual_seed(step)
        data = torch.randint(0, VOCAB, (MICRO, MBS, SEQ + 1))
        losses = pipe.run(data[..., :-1], data[..., 1:])
        opt.step()
        opt.zero_grad()
        loss = torch.stack(losses).sum() if losses else torch.zeros(())
        dist.broadcast(loss, src=size - 1)
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}")


main()
