"""A classifier under accelerate's DDP, with gradients accumulated over two batches."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(32, 16, generator=generator), torch.randint(0, 4, (32,), generator=generator))
loader = DataLoader(data, batch_size=8 // accelerator.num_processes)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for inputs, labels in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print("loss", float(accelerator.gather(loss.detach()).mean()))
