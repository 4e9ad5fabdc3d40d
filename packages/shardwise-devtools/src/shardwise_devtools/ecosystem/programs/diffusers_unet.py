"""A UNet of diffusers learns to denoise under accelerate's DDP, as its training examples do: two steps."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
sizes = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 4}
model = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"), **sizes,
)  # fmt: skip
ema = EMAModel(model.parameters(), decay=0.9)
noise_scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(1)
images, noises = torch.randn(2, 32, 1, 8, 8, generator=generator)
times = torch.randint(0, 100, (32,), generator=generator)
data = [
    {"images": image, "noise": noise, "time": time} for image, noise, time in zip(images, noises, times, strict=True)
]
loader = DataLoader(data, batch_size=8 // accelerator.num_processes)
# accelerate lets a schedule take as many steps at a time as there are processes.
schedule = get_cosine_schedule_with_warmup(optimizer, accelerator.num_processes, num_training_steps=len(loader))
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for batch in loader:
    noisy = noise_scheduler.add_noise(batch["images"], batch["noise"], batch["time"])
    with accelerator.accumulate(model):
        guess = model(noisy, batch["time"], return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(guess, batch["noise"])
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        ema.step(model.parameters())
    accelerator.print("loss", loss.item())
