# %% [markdown]
# # Upgrade an embedding model without embedding everything again
#
# An index holds vectors of an old model. The new model lives in another space. Can a map fitted on a few hundred documents stand in for embedding the corpus again?
#
# The "documents" are handwritten digits, and the models are two networks. With your own data, load two tables with the same ids instead.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from congruence import translate

images, labels = load_digits(return_X_y=True)


def model(width, seed):
    net = MLPClassifier((width,), max_iter=60, early_stopping=True, random_state=seed).fit(images / 16, labels)
    return lambda x: np.maximum(x / 16 @ net.coefs_[0] + net.intercepts_[0], 0)


old_model, new_model = model(64, 0), model(96, 1)
sample = np.random.default_rng(0).permutation(len(images))[:800]
result = translate(old_model(images[sample]), new_model(images[sample]), normalize="cosine")
result

# %% [markdown]
# The certificate is for an index of the size of the sample, and an index is usually larger. The real old vectors make the statement about the real index; queries that were not used
# for the fit make it about queries:

# %%
rest = np.setdiff1d(np.arange(len(images)), sample)
queries = rest[:300]
certified = translate(
    old_model(images[sample]), new_model(images[sample]), normalize="cosine",
    index=old_model(images), queries=(old_model(images[queries]), new_model(images[queries])),
)  # fmt: skip
print(certified.verdict)
for finding in certified.findings[:3]:
    print("-", finding.claim, finding.status)

# %% [markdown]
# A *no-go* is a result as well: it says what the map would lose, before anybody notices in production. The map itself is a callable that can be saved, exported to ONNX and applied
# to files of any size (`congruence translate apply`).

# %%
in_old_space = certified.translator(new_model(images[queries]))
in_old_space.shape
