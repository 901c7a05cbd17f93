# %% [markdown]
# # Write a decoder and ask what it guarantees
#
# Two autoencoders that reconstruct the same data equally well can still have different codes. How different depends on the decoder: if it keeps lengths, only a rotation is left
# (Theorem 1 of Nelson et al. 2026).

# %%
import numpy as np
import torch
from scipy.stats import ortho_group

from congruence import examine_decoder, examine_mechanism

rng = np.random.default_rng(0)
latents = rng.uniform(-1, 1, size=(400, 3))
basis = torch.tensor(ortho_group.rvs(8, random_state=0)[:3])


def isometry(z):
    return z @ basis


examine_decoder(isometry, latents)

# %% [markdown]
# A bent decoder stretches some directions. The theorem still applies where its constant is small; here the bound says nothing, and the result says so.


# %%
def bent(z):
    return torch.cat([z @ basis, 0.5 * torch.sin(3 * z)], dim=1)


result = examine_decoder(bent, latents)
print(result.status)
print(result.verdict)
result.plot()

# %% [markdown]
# The second question is about mechanism: which outputs does each latent move? If blocks of latents act on separate outputs, the blocks are identified whatever the distribution of
# the latents.

# %%
slots = torch.nn.ModuleList(
    torch.nn.Sequential(torch.nn.Linear(k, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6)) for k in (1, 2)
).double()


def scene(z):  # one object with one latent, one with two; six pixels each
    return torch.cat([slots[0](z[:, :1]), slots[1](z[:, 1:])], dim=1)


examine_mechanism(scene, latents[:50], blocks="0,1-2")

# %% [markdown]
# Rotate the latents and the same pictures come from a decoder whose latents do not act separately. Without `blocks`, the blocks that the decoder supports are searched for:

# %%
turn = torch.tensor(ortho_group.rvs(3, random_state=1))
found = examine_mechanism(lambda z: scene(z @ turn), latents[:50])
print(found.verdict)
