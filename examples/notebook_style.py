"""A model and its training, cell by cell.

Each `# %%` begins a cell in VS Code, PyCharm and Jupytext; as a script it simply runs.
"""

# %%
from __future__ import annotations

import os

import torch
from torch import nn

import papertoanything as ptoa

STEPS = int(os.environ.get("STEPS", "200"))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
points = torch.rand(256, 2) * 2 - 1
inside = (points.norm(dim=1, keepdim=True) < 0.7).float()

# %% [markdown]
# The architecture. In a notebook `spec` alone on the last line of a cell draws itself.

# %%
spec = ptoa.from_module(model, points[:1])
for block in spec.blocks:
    print(block.id, block.kind, block.label or "")

# %% [markdown]
# A file with one recorded forward pass, to drop on the Lab or to open with `ptoa view`.

# %%
path = ptoa.show(model, points[:8], mode="file")

# %% [markdown]
# `watch` returns at once; the bridge keeps running in the background while the next cells train.

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
watch = ptoa.watch(model, optimizer, every=5, lab_url="local")

# %%
for _ in range(STEPS):
    loss = nn.functional.binary_cross_entropy_with_logits(model(points), inside)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watch.step(loss)
print(f"loss {loss.item():.3f}; the run is in {watch.run_file.path}")

# %% [markdown]
# The numbers behind the charts are here too.

# %%
for frame in watch.frames[-3:]:
    print(frame.step, frame.loss, [block.id for block in frame.blocks])

# %%
watch.close()
