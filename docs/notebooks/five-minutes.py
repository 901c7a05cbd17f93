# %% [markdown]
# # Did retraining only rotate my embeddings?
#
# We train the same small network three times on handwritten digits, with different seeds, and ask whether the hidden layers agree.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from congruence import compare

images, digits = load_digits(return_X_y=True)
images = images / 16


def hidden_layer(seed):
    net = MLPClassifier((16,), max_iter=100, early_stopping=True, random_state=seed).fit(images, digits)
    return np.maximum(images @ net.coefs_[0] + net.intercepts_[0], 0)


runs = {f"seed {seed}": hidden_layer(seed) for seed in range(3)}
{name: run.shape for name, run in runs.items()}

# %% [markdown]
# Each run is a table of 1797 digits and 16 units. `compare` fits maps of growing freedom (a permutation, a rotation, any linear map) on some rows and scores them on others, relative to unrelated runs.

# %%
result = compare(runs)
result

# %% [markdown]
# The status and the verdict are for reading, the frame is for computing. Errors are shares of chance: 1 is what unrelated runs give.

# %%
print(result.status)
print(result.verdict)
frame = result.to_frame()
frame[[column for column in frame.columns if column in ("source", "target", "group", "r2")]].head(8)

# %% [markdown]
# One pair in more detail: the rows that the best rotation places worst, counted by digit.

# %%
pair = compare(runs["seed 0"], runs["seed 1"])
moved = pair.moved().order[:200]
print("digits among the 200 rows that differ most:", np.bincount(digits[moved], minlength=10))
pair.plot()
