"""Theorem 2 of the paper: a bound on the distance between the components of two trainings.

If two representations agree up to a map with error epsilon, their components after whitening and ICA agree up to a
signed permutation with error K epsilon + K' epsilon^2. The form is the paper's; the constants are derived here, may
differ from the paper's, and are loose: they multiply worst cases that do not occur together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import to_numpy
from congruence.errors import InputError
from congruence.formatting import number
from congruence.ica._contrasts import contrast_named
from congruence.ica._passes import Passes
from congruence.ica._point import random_rotation
from congruence.ica._solver import solve
from congruence.maps._diameter import diameter
from congruence.maps.groups import fit_map
from congruence.result import Finding, Status, conclude
from congruence.rows.algebra import svd
from congruence.rows.engine import Rows
from congruence.rows.sums import run_sums
from congruence.tables import as_paired


@dataclass(frozen=True)
class Theorem2:
    """The bound K epsilon + K' epsilon^2 on the distance of components, with its constants; the bound is loose."""

    epsilon: float  # largest distance of paired rows after the map
    diameter: float  # of the rows
    smallest_variance: float  # smallest eigenvalue of both covariances
    dimension: int
    curvature: float  # gamma: of the contrast around the solution
    whitening: float  # K6: by how much whitening enlarges epsilon
    linear: float  # K
    quadratic: float  # K'
    bound: float  # K epsilon + K' epsilon^2
    trivial: float  # the distance that no two white runs exceed: twice the largest length of a whitened row

    @property
    def finding(self) -> Finding:
        """The conclusion of the theorem; "unknown" where the bound is not below the trivial one."""
        near, informative = number(self.bound), self.bound < self.trivial
        agree = f"The two runs differ by at most {number(self.epsilon)} after the map."
        below = f"The bound {near} is below {number(self.trivial)}, which no two white runs exceed."
        status: Status = "holds" if informative else "fails"
        premises = (
            Finding("agreement", agree, "holds", number=self.epsilon),
            Finding("curvature", "The contrast is strictly curved at the solution.", "holds", number=self.curvature),
            Finding("informative", below, status, number=self.bound, null=self.trivial),
        )
        claim = f"The components of the two runs differ by at most {near}, up to order and sign (Theorem 2)."
        return conclude("theorem_2", claim, premises, number=self.bound, null=self.trivial)


def theorem2(
    epsilon: float,
    *,
    diameter: float,
    smallest_variance: float,
    dimension: int,
    curvature: float,
    singular_values: tuple[float, float] = (1.0, 1.0),
    contrast: str = "logcosh",
) -> Theorem2:
    """Bound the distance of components of two runs that agree to `epsilon`.

    Parameters
    ----------
    epsilon : float
        Largest distance of paired rows after the best map.
    diameter : float
        Of the rows of both runs, which have zero mean.
    smallest_variance : float
        Smallest eigenvalue of both covariances.
    dimension : int
        Number of components.
    curvature : float
        Smallest eigenvalue of the contrast's Riemannian Hessian (Frobenius metric) between the two solutions.
    singular_values : (float, float)
        Smallest and largest of the map's matrix; (1, 1) for a rigid map.
    contrast : {"logcosh", "exp"}
        The theorem does not apply to "cube", whose derivatives are unbounded.

    Returns
    -------
    Theorem2
        The bound is loose; `finding` has the status of the conclusion.

    References
    ----------
    Nelson et al. 2026, Theorem 2; constants of this package.
    """
    form = contrast_named(contrast)
    if not np.isfinite(form.slope):
        raise InputError(f"Theorem 2 needs a contrast with bounded derivatives; got {contrast!r}")
    least, most = singular_values
    positive = {"diameter": diameter, "smallest_variance": smallest_variance, "curvature": curvature}
    for name, value in (positive | {"the smallest singular value": least}).items():
        if not value > 0:
            raise InputError(f"{name} must be above 0 for Theorem 2 to hold; got {value}")
    if epsilon < 0:
        raise InputError(f"epsilon must be at least 0; got {epsilon}")
    root = float(np.sqrt(smallest_variance))
    turn = diameter * (1 + most) / (root**3 * least * (1 + least))
    whitening = min(diameter * turn + 1 / (least * root), most * diameter * turn + 1 / root)
    radius = diameter / root
    steer = (np.sqrt(dimension) * form.slope + form.curvature * radius) / curvature
    linear, quadratic = float(whitening * (1 + steer * radius)), float(steer * whitening**2)
    bound = linear * epsilon + quadratic * epsilon**2
    return Theorem2(
        epsilon, diameter, smallest_variance, dimension, curvature, whitening, linear, quadratic, bound, 2 * radius
    )


def theorem2_for(x: Any, y: Any, *, group: str = "rigid", contrast: str = "logcosh", seed: int = 0) -> Theorem2:
    """Evaluate Theorem 2 for two runs.

    The supremum, the diameter and the eigenvalues are those of the sample, and the curvature is that at the solution of
    y for independent components. The theorem is about the whole support and the whole path between the solutions, so
    this is an estimate of the bound, not a certificate.

    Parameters
    ----------
    x, y : (n, d)
        Paired rows.
    group : str
        The group of the map from x to y, see `congruence.maps.groups`.
    contrast : {"logcosh", "exp"}
        As of `theorem2`.
    seed : int
        Of the rotation that the solver starts from.
    """
    x, y = as_paired(x, y)
    if x.shape[1] != y.shape[1]:
        raise InputError(f"x and y must have the same width for Theorem 2; got {x.shape[1]} and {y.shape[1]} columns")
    best_map = fit_map(x, y, group)
    distances = np.linalg.norm(to_numpy(best_map(x)) - to_numpy(y), axis=1)
    spreads = [run_sums(Rows(run), [np.arange(len(x))]).outside(None) for run in (x, y)]
    if not all(spread.full for spread in spreads):
        raise InputError("Theorem 2 needs rows that vary in every direction; whiten them first")
    values = svd(best_map.matrix)[1]
    return theorem2(
        float(distances.max()),
        diameter=max(diameter(run).value for run in (x, y)),
        smallest_variance=min(float(spread.axes[1][-1] ** 2 / spread.n) for spread in spreads),
        dimension=int(y.shape[1]),
        curvature=_curvature(y, spreads[1].axes, contrast, seed),
        singular_values=(float(values[-1]), float(values[0])),
        contrast=contrast,
    )


def _curvature(y: Any, axes: Any, contrast: str, seed: int) -> float:
    """The smallest curvature of any plane of two components at the solution."""
    directions, singular = axes
    data = to_numpy(y)
    whitening = (directions / (singular / np.sqrt(len(data)))).T
    source = Passes(data, data.mean(0, dtype=np.float64), whitening, contrast_named(contrast))
    point = solve(source, random_rotation(source.k, np.random.default_rng(seed)), noise="free").point
    planes = point.curvature[~np.eye(source.k, dtype=bool)]
    return float(planes.min()) if planes.size else float(np.abs(point.kappa).max())
