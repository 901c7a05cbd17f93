import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence.maps.groups import fit_map
from congruence.rows.engine import Rows
from congruence.translation import Translator
from congruence.translation._far import fit_region


def paired(n, d_new, d_old, seed=0):
    """New and old vectors of the same rows, far from the origin and of different scales."""
    rng = np.random.default_rng(seed)
    latent = rng.laplace(size=(n, max(d_new, d_old)))
    turn = ortho_group.rvs(latent.shape[1], random_state=seed)
    return (5 + 2 * latent @ turn)[:, :d_new], latent[:, :d_old] - 3


@pytest.fixture
def make_translator():
    """A translator of any widths, with what it needs to flag far rows."""

    def make(d_new=4, d_old=4, normalize=None, n=400, group="linear"):
        new, old = paired(n, d_new, d_old)
        region = fit_region(Rows(new, scale_rows=normalize is not None), np.arange(n) % 5)
        return Translator(fit_map(new, old, group), normalize, d_new, d_old, region)

    return make
