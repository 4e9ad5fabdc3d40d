# A pipeline over lists of tensors, by send and recv. mesh: pp=2
import torch
import torch.distributed as dist

LAYERS, D, MICRO = 4, 6, 3


def layer(p, x):
    w, b = p
    return x + torch.tanh(x @ w + b)


def run(params, x):
    for p in params:
        x = layer(p, x)
    return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(50)
    layers = [[torch.randn(D, D, generator=gen) * 0.4, torch.randn(D, generator=gen) * 0.1] for _ in range(LAYERS)]
    per = LAYERS // world
    own = layers[rank * per : (rank + 1) * per]
    for p in own:
        for t in p:
            t.requires_grad_()
    for step in range(3):
        x, y = torch.randn(MICRO * 2, D, generator=gen), torch.randn(MICRO * 2, D, generator=gen)
        kept, total = [], torch.zeros(())
        for m in range(MICRO):
            if rank == 0:
                inp = x[2 * m : 2 * m + 2]
            else:
                inp = torch.empty(2, D)
                dist.recv(inp, rank - 1)
                inp.requires_grad_()
            out = run(own, inp)
            if rank < world - 1:
                dist.send(out.detach(), rank + 1)
            else:
                out = (out - y[2 * m : 2 * m + 2]).square().mean() / MICRO
                total += out.detach()
            kept.append((inp, out))
        for inp, out in kept:
            if rank == world - 1:
                out.backward()
            else:
                grad = torch.empty(2, D)
                dist.recv(grad, rank + 1)
                out.backward(grad)
            if rank > 0:
                dist.send(inp.grad, rank - 1)
        with torch.no_grad():
            for p in own:
                for t in p:
                    t -= 0.2 * t.grad
                    t.grad = None
        if rank == world - 1:
            print(f"step {step} loss {total.item():.6f}")
    dist.destroy_process_group()


main()
