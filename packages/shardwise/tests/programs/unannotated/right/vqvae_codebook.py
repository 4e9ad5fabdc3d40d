# A VQ-VAE whose codebook is a moving average of the codes of all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Quantize(nn.Module):
    def __init__(self, dim, n_embed, decay=0.9, eps=1e-5):
        super().__init__()
        self.dim, self.n_embed, self.decay, self.eps = dim, n_embed, decay, eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        flatten = input.reshape(-1, self.dim)
        d = flatten.pow(2).sum(1, keepdim=True) - 2 * flatten @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        _, embed_ind = (-d).max(1)
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        quantize = F.embedding(embed_ind.view(*input.shape[:-1]), self.embed.transpose(0, 1))
        if self.training:
            embed_onehot_sum = embed_onehot.sum(0)
            embed_sum = flatten.transpose(0, 1) @ embed_onehot
            dist.all_reduce(embed_onehot_sum)
            dist.all_reduce(embed_sum)
            self.cluster_size.data.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
            self.embed_avg.data.mul_(self.decay).add_(embed_sum.detach(), alpha=1 - self.decay)
            n = self.cluster_size.sum()
            cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
            self.embed.data.copy_(self.embed_avg / cluster_size.unsqueeze(0))
        diff = (quantize.detach() - input).pow(2).mean()
        quantize = input + (quantize - input).detach()
        return quantize, diff, embed_ind


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
        self.quantize = Quantize(4, 6)
        self.dec = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        q, diff, _ = self.quantize(self.enc(x))
        return self.dec(q), diff


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(VQVAE(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    dataset = torch.utils.data.TensorDataset(torch.randn(24, 10))
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=True, seed=0)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8 // dist.get_world_size(), sampler=sampler)
    mse_sum, mse_n = 0.0, 0
    for epoch in range(1):
        sampler.set_epoch(epoch)
        for (img,) in loader:
            model.zero_grad()
            out, latent_loss = model(img)
            recon_loss = F.mse_loss(out, img)
            loss = recon_loss + 0.25 * latent_loss.mean()
            loss.backward()
            optimizer.step()
            part_mse = torch.tensor([recon_loss.item() * img.shape[0], img.shape[0]])
            dist.all_reduce(part_mse)
            mse_sum += part_mse[0].item()
            mse_n += part_mse[1].item()
    if dist.get_rank() == 0:
        print(f"mse {mse_sum / mse_n:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
