# Speech: convolutions, a GRU, CTC over utterances of different lengths, a mean over the labels of all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence


class Utterances(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(4)
        self.items = []
        for _ in range(n):
            frames = int(torch.randint(12, 20, (), generator=g))
            labels = int(torch.randint(1, 5, (), generator=g))
            self.items.append((torch.randn(frames, 6, generator=g), torch.randint(1, 7, (labels,), generator=g)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    waves, labels = zip(*batch)
    return (
        pad_sequence(waves, batch_first=True),
        torch.tensor([len(w) for w in waves]),
        torch.cat(labels),
        torch.tensor([len(t) for t in labels]),
    )


class Acoustic(nn.Module):
    def __init__(self, hidden=8, classes=7):
        super().__init__()
        self.conv = nn.Conv1d(6, hidden, 3, padding=1)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, classes)

    def forward(self, waves, lengths):
        keep = (torch.arange(waves.shape[1])[None] < lengths[:, None]).unsqueeze(-1)
        x = torch.relu(self.conv((waves * keep).transpose(1, 2))).transpose(1, 2) * keep
        x, _ = self.rnn(x)
        return self.out(x).log_softmax(-1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    model = DistributedDataParallel(Acoustic())
    ctc = nn.CTCLoss(blank=0, reduction="sum", zero_infinity=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
    dataset = Utterances(16)
    sampler = torch.utils.data.DistributedSampler(dataset, world, rank, shuffle=False)
    loader = torch.utils.data.DataLoader(dataset, 4 // world, sampler=sampler, collate_fn=collate)
    for waves, wave_lengths, labels, label_lengths in loader:
        logp = model(waves, wave_lengths)
        summed = ctc(logp.transpose(0, 1), labels, wave_lengths, label_lengths)
        count = label_lengths.sum().float()
        dist.all_reduce(count)
        loss = summed * world / count
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total = summed.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"ctc per label {(total / count).item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
