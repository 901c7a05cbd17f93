"""How similarities.json was made: other people's implementations on seeded inputs. Not run by the tests.

Written for a fresh environment with only these packages (and what they need):

    pip install numpy ckatorch==1.0.3 repsim==0.1.5 rsatoolbox==0.3.2
    pip download --no-deps --no-binary :all: similarity-repository==0.0.1  # holds files of google/svcca and amzn/xfer
    tar xf similarity-repository-0.0.1.tar.gz
    python make_similarities.py similarity-repository-0.0.1 > similarities.json
"""

import json
import runpy
import sys
from importlib.metadata import version

import numpy as np
import repsim
import rsatoolbox
import torch
from ckatorch.core import cka_base

BACKEND = f"{sys.argv[1]}/similarity/backend"
get_cca_similarity = runpy.run_path(f"{BACKEND}/svcca/cca_core.py")["get_cca_similarity"]
bures = runpy.run_path(f"{BACKEND}/nn_similarity_index/sim_indices.py")["SimIndex"]().nbs
CASES = [
    {"seed": 0, "n": 60, "d_x": 5, "d_y": 5},
    {"seed": 1, "n": 40, "d_x": 3, "d_y": 7},
    {"seed": 2, "n": 80, "d_x": 8, "d_y": 4},
]


def inputs(seed, n, d_x, d_y):
    """As in the tests: y is a linear map of x with noise, both away from the origin."""
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=(n, d_x)) * np.arange(1, d_x + 1) + 3
    y = x @ rng.normal(size=(d_x, d_y)) + rng.normal(size=(n, d_y)) - 2
    return x, y


def truncated(x, variance=0.99):
    """The SVD step of google/svcca's tutorial: the fewest directions that hold the share; (directions, rows)."""
    _, s, vt = np.linalg.svd((x - x.mean(0)).T, full_matrices=False)
    keep = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), variance)) + 1
    return s[:keep, None] * vt[:keep]


def rdm(x):
    return rsatoolbox.rdm.calc_rdm(rsatoolbox.data.Dataset(x), method="euclidean")


def values(x, y):
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    return {
        "plain_cka": float(cka_base(*tensors)),
        "cka": float(cka_base(*tensors, unbiased=True)),
        "svcca": float(np.mean(get_cca_similarity(truncated(x), truncated(y), verbose=False)["cca_coef1"])),
        "pwcca, mean of both ways": float(repsim.pwcca([x, y])[0, 1]),
        "rsa": float(rsatoolbox.rdm.compare(rdm(x), rdm(y), method="spearman")[0, 0]),
        "rsa_pearson": float(rsatoolbox.rdm.compare(rdm(x), rdm(y), method="corr")[0, 0]),
        "cosine of angular_procrustes": float(bures(x @ x.T, y @ y.T)),
    }


if __name__ == "__main__":
    sources = {
        "plain_cka": f"ckatorch {version('ckatorch')}, cka_base",
        "cka": f"ckatorch {version('ckatorch')}, cka_base, unbiased",
        "svcca": "similarity-repository 0.0.1, google/svcca, get_cca_similarity, mean of cca_coef1 after the SVD",
        "pwcca, mean of both ways": f"repsim {version('repsim')}, pwcca",
        "rsa": f"rsatoolbox {version('rsatoolbox')}, euclidean, spearman",
        "rsa_pearson": f"rsatoolbox {version('rsatoolbox')}, euclidean (which is squared there), corr",
        "cosine of angular_procrustes": "similarity-repository 0.0.1, amzn/xfer, SimIndex.nbs (Tang et al. 2020)",
    }
    cases = [case | {"values": values(*inputs(**case))} for case in CASES]
    print(json.dumps({"made by": "make_similarities.py", "sources": sources, "cases": cases}, indent=1))
