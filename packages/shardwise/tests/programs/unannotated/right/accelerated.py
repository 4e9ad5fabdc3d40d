# An accelerator prepares model, optimizer and loader; sums of tokens over steps that accumulate. mesh: dp=2
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler


class BatchSamplerShard(BatchSampler):
    def __init__(self, batch_sampler, num_processes, process_index):
        self.batch_sampler = batch_sampler
        self.num_processes, self.process_index = num_processes, process_index

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        for batch in self.batch_sampler:
            size = len(batch) // self.num_processes
            yield batch[size * self.process_index : size * (self.process_index + 1)]


class AcceleratedOptimizer(torch.optim.Optimizer):
    def __init__(self, optimizer, state):
        self.optimizer, self.state_ = optimizer, state

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=None):
        if self.state_["sync"]:
            self.optimizer.zero_grad()

    def step(self, closure=None):
        if self.state_["sync"]:
            self.optimizer.step(closure)


class Accelerator:
    def __init__(self, gradient_accumulation_steps):
        dist.init_process_group("gloo")
        self.process_index, self.num_processes = dist.get_rank(), dist.get_world_size()
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.state, self.step = {"sync": True}, 0

    @property
    def sync_gradients(self):
        return self.state["sync"]

    def prepare(self, model, optimizer, loader):
        sampler = BatchSamplerShard(loader.batch_sampler, self.num_processes, self.process_index)
        loader = DataLoader(loader.dataset, batch_sampler=sampler, collate_fn=loader.collate_fn)
        return DDP(model), AcceleratedOptimizer(optimizer, self.state), loader

    @contextlib.contextmanager
    def accumulate(self, model):
        self.step += 1
        self.state["sync"] = self.step % self.gradient_accumulation_steps == 0
        with contextlib.nullcontext() if self.sync_gradients else model.no_sync():
            yield

    def backward(self, loss):
        loss.backward()

    def gather(self, tensor):
        parts = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def reduce(self, tensor):
        tensor = tensor.clone()
        dist.all_reduce(tensor)
        return tensor


class Sentences(Dataset):
    def __init__(self, count=32, length=7):
        g = torch.Generator().manual_seed(3)
        self.tokens = torch.randint(1, 24, (count, length), generator=g)
        lengths = torch.randint(3, length + 1, (count,), generator=g)
        self.mask = torch.arange(length)[None] < lengths[:, None]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "attention_mask": self.mask[index]}


def collate(items):
    batch = {key: torch.stack([item[key] for item in items]) for key in items[0]}
    batch["labels"] = batch["input_ids"].masked_fill(~batch["attention_mask"], -100)
    return batch


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(24, 12), nn.GRU(12, 12, batch_first=True), nn.Linear(12, 24)

    def forward(self, input_ids, attention_mask, labels=None, num_items_in_batch=None):
        hidden, _ = self.mix(self.embed(input_ids) * attention_mask[..., None])
        logits = self.head(hidden)
        if labels is None:
            return None, logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        return loss / num_items_in_batch, logits


def get_batch_samples(batches, steps):
    samples = []
    for _ in range(steps):
        with contextlib.suppress(StopIteration):
            samples.append(next(batches))
    return samples


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    torch.manual_seed(42)
    model, data = Tagger(), Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = DataLoader(
        data, batch_sampler=BatchSampler(SequentialSampler(data), 8, drop_last=True), collate_fn=collate
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = iter(loader)
    for update in range(2):
        samples = get_batch_samples(batches, accelerator.gradient_accumulation_steps)
        counts = torch.stack([(batch["labels"][:, 1:] != -100).sum() for batch in samples])
        num_items_in_batch = accelerator.reduce(counts.sum())
        logged = torch.zeros(())
        for batch in samples:
            with accelerator.accumulate(model):
                loss, _ = model(**batch, num_items_in_batch=num_items_in_batch)
                loss = loss * accelerator.num_processes
                logged += loss.detach()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        total = accelerator.gather(logged[None]).mean()
        if accelerator.process_index == 0:
            print(f"update {update} loss {total:.6f}")
    model.eval()
    right, seen = 0, 0
    for batch in loader:
        with torch.no_grad():
            _, logits = model(batch["input_ids"], batch["attention_mask"])
        predictions, references = accelerator.gather(logits.argmax(-1)), accelerator.gather(batch["input_ids"])
        right, seen = right + (predictions == references).sum().item(), seen + references.numel()
    if accelerator.process_index == 0:
        print(f"accuracy {right / seen:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
