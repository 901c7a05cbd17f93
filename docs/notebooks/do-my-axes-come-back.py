# %% [markdown]
# # Do my axes come back?
#
# Trainings often agree up to a rotation. Independent component analysis can remove the rotation, but not for every axis: some have no preferred direction. Here the truth is known:
# six independent sources, four of them far from Gaussian and two Gaussian.

# %%
import numpy as np
from scipy.stats import ortho_group

from congruence import compare, evaluate, resolve

rng = np.random.default_rng(0)
sources = np.column_stack(
    [rng.laplace(size=(4000, 2)), rng.uniform(-1.7, 1.7, size=(4000, 2)), rng.normal(size=(4000, 2))]
)
first = sources @ ortho_group.rvs(6, random_state=1)  # "training 1"
second = sources @ ortho_group.rvs(6, random_state=2)  # "training 2": the same, rotated
compare(first, second).verdict

# %% [markdown]
# The two runs differ by a rotation only. Do the axes come back without using the pairing? Each run is resolved on rows of its own.

# %%
one, two = resolve(first[:2000]), resolve(second[2000:])
print("identified components:", one.identified, "and", two.identified)
one

# %% [markdown]
# Four components are identified; the Gaussian ones are not, since no method can find their axes. On all rows, each identified component of one run is a component of the other, and the
# others are not:

# %%
a, b = one.ica.transform(first), two.ica.transform(second)
correlations = np.abs(np.corrcoef(a.T, b.T)[:6, 6:])
for component, identified in enumerate(one.ica.identified_):
    print(f"component {component}: correlation {correlations[component].max():.3f}", "identified" if identified else "")

# %% [markdown]
# And they are the true sources, which `evaluate` says with the truth at hand:

# %%
evaluate(a, sources, metrics="fast", seed=0).verdict
