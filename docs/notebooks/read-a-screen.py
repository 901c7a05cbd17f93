# %% [markdown]
# # Read a Cell Painting screen
#
# Wells of a screen are embedded as vectors. Plates differ for technical reasons. Does a correction help to recognise perturbations on plates that were never seen? The screen is
# simulated here, so that the notebook needs no download; with your own data, load a table with the columns `plate` and `gene`. Needs LightGBM: `pip install 'congruence[lightgbm]'`.

# %%
import numpy as np

from congruence import deconfound

rng = np.random.default_rng(0)
plates, wells, d = 16, 36, 24
plate = np.repeat(np.arange(plates), wells)
gene = np.tile(np.repeat(["none", "MTOR", "PLK1", "RPL11"], wells // 4), plates)
effects = {name: rng.laplace(size=d) * (name != "none") for name in np.unique(gene)}
x = rng.laplace(size=(len(plate), d)) + 0.6 * np.array([effects[name] for name in gene])
x = (x + 2.5 * rng.normal(size=(plates, d))[plate]) @ rng.normal(size=(d, d))  # plates shift, the model mixes
x.shape

# %% [markdown]
# `deconfound` trains a classifier for each gene on some plates and tests it on others, before and after each correction. `base` is the embedding as it is, `standardised` subtracts
# the mean of the controls of each plate.

# %%
result = deconfound(
    x,
    batch=plate,
    target=gene,
    control="none",
    conditions=("base", "whitened", "ica", "standardised"),
    rounds=30,
    seed=0,
)
result

# %% [markdown]
# The figure shows each gene on the plates that were held out. Differences count only after a correction for the number of comparisons.

# %%
result.plot()

# %% [markdown]
# What limits the answer is in the notes:

# %%
for note in result.notes:
    print("-", note)
