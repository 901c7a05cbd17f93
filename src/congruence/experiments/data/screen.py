"""A simulated screen like Cell Painting with known ground truth: biological factors, plate effects and their mixing.

The distributions, fixed before any result was computed:

* **Factors.** As many as the embedding has dimensions, independent given the design, all non-Gaussian. Their noise is,
  in turn, Laplace, skewed (gamma of shape 2), uniform, or bimodal, of unit variance, times a scale of its own: a
  log-normal with standard deviation 0.25, so the spectrum is dense and most variances have close neighbours.
* **Biology**, d // 16 factors but at least 10, with 0.7 times that scale: biology is weaker than the other factors.
  CYP11B1, HCK and SRC shift one factor by 1.2 standard deviations of it, EIF3H two by 1.0, MTOR two by 0.8 and PLK1
  three by 1.5; no factor belongs to two genes. The effect of a guide is that of its gene times a log-normal of 0.2.
  Response is heterogeneous: a perturbed row responds with probability 0.8, and then by a gamma of shape 2 and mean 1
  times the shift. The true factor of a one-factor gene gives an AUROC near 0.75.
* **Technical**, d // 8 factors but at least 4. On each plate a factor has a shift (Laplace, standard deviation 1) and
  a scale (log-normal of 0.3) of its own; every second one also has a position effect, half of them at the edge of the
  plate (+0.8) and half along its columns (from -0.6 to 0.6).
* **Nuisance**: all other factors, which neither genes nor plates affect.
* **Design.** Rows are divided evenly over plates, wells are drawn independently on each plate, a tenth of the plates
  has only controls, and the rows of a guide are a given share of all rows, spread over the other plates. The rest are
  controls.
* **Mixing.** `experiments.data._mixing`: rotations with cosine fields between them, whose distance from an isometry is
  set by the dial; then Gaussian noise of standard deviation 0.05 on every coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_integer, check_number, check_seed
from congruence.errors import InputError
from congruence.experiments.data._mixing import Mixing, draw_mixing

GENES = {  # guides, factors and their shift in standard deviations
    "CYP11B1": (1, 1, 1.2),
    "EIF3H": (1, 2, 1.0),
    "HCK": (1, 1, 1.2),
    "MTOR": (6, 2, 0.8),
    "PLK1": (6, 3, 1.5),
    "SRC": (1, 1, 1.2),
}
CONTROL = "control"
SHARE = 1 / 140  # of the rows, for each guide: 1,584 wells of 222,601 in RxRx3-core
CONTROL_PLATES = 0.1
WELL_ROWS, WELL_COLUMNS = 16, 24
RESPONDING, NOISE = 0.8, 0.05
SCALE_SPREAD, BIOLOGY_SCALE, GUIDE_SPREAD = 0.25, 0.7, 0.2
PLATE_SHIFT, PLATE_SPREAD, EDGE, COLUMN = 1.0, 0.3, 0.8, 0.6
MOST_ROWS = 10_000_000


@dataclass(frozen=True, eq=False)
class SimulatedScreen:
    """Embeddings of wells with the treatment of each, and the true factors they were generated from."""

    x: Array  # (n, d) float32
    gene: Array  # (n,) str, "control" for untreated wells
    guide: Array  # (n,) str, "control" for untreated wells
    plate: Array  # (n,) str
    is_control: Array  # (n,) bool
    biology: Array  # (n, b) float32, the true factors that genes shift
    technical: Array  # (n, t) float32, the true factors that plates shift
    names: tuple[str, ...]  # of the columns of biology, then of technical
    effects: Array  # (guides, b) the mean shift of each guide, in the units of `biology`
    guides: tuple[str, ...]  # the rows of `effects`
    factors: Array  # (m, d) some rows of all factors, at which the mixing can be measured
    mixing: Mixing

    @property
    def genes(self) -> tuple[str, ...]:
        """The genes, in the order of the paper's tables."""
        return tuple(GENES)


def simulate_screen(
    n: int = 222_000,
    d: int = 384,
    plates: int = 180,
    dial: float = 0.0,
    seed: int = 0,
    *,
    share: float = SHARE,
    examined: int = 64,
) -> SimulatedScreen:
    """Simulate a screen with the distributions that the docstring of the module states.

    The same seed gives the same wells, factors and rotations for every dial, so screens differ in the dial alone.

    Parameters
    ----------
    n : int
        Rows (images); the default is the size of RxRx3-core.
    d : int
        Dimensions of the embedding; the default is that of OpenPhenom.
    plates : int
        Number of plates (batches).
    dial : float
        Distance of the mixing from an isometry; 0 is an isometry, below 1 its constant is bounded, see `Mixing`.
    seed : int
        Of the simulation.
    share : float
        Share of all rows for each of the 16 guides.
    examined : int
        Rows of all factors to keep, for measurements of the mixing.
    """
    check_integer("d", d, 24, 4096)
    check_integer("plates", plates, 2)
    check_integer("n", n, plates, MOST_ROWS)
    check_number("share", share, 0, 1, open_low=True)
    check_seed(seed)
    rng = np.random.default_rng([seed, 7])
    plate = np.repeat(np.arange(plates), np.diff(np.linspace(0, n, plates + 1).astype(int)))
    guides = tuple(f"{gene}_guide_{i + 1}" for gene, (count, *_) in GENES.items() for i in range(count))
    guide = _deal_guides(plate, plates, len(guides), share, rng)
    b, t = max(10, d // 16), max(4, d // 8)

    z, scales = _noise(n, d, rng)
    z[:, :b] *= np.float32(BIOLOGY_SCALE)
    effects = _effects(b, rng) * (scales[:b] * BIOLOGY_SCALE)
    perturbed = np.flatnonzero(guide >= 0)
    z[perturbed, :b] += effects[guide[perturbed]] * _response(len(perturbed), rng)
    _add_plates(z[:, b : b + t], plate, plates, rng)

    mixing = draw_mixing(d, dial, seed)
    x = mixing(z)
    _add_noise(x, rng)
    words = np.array([*guides, CONTROL])  # the last is indexed by -1
    genes = np.array([name.rsplit("_guide_", 1)[0] for name in words])
    return SimulatedScreen(
        x=x,
        gene=genes[guide],
        guide=words[guide],
        plate=np.char.mod("plate-%03d", np.arange(1, plates + 1))[plate],
        is_control=guide < 0,
        biology=z[:, :b].copy(),
        technical=z[:, b : b + t].copy(),
        names=tuple(f"biology {i}" for i in range(b)) + tuple(f"technical {i}" for i in range(t)),
        effects=effects,
        guides=guides,
        factors=z[np.sort(rng.permutation(n)[:examined])],
        mixing=mixing,
    )


def _deal_guides(plate: Array, plates: int, guides: int, share: float, rng: np.random.Generator) -> Array:
    """The guide of each row, or -1 for controls, (n,)."""
    without = rng.permutation(plates)[: int(CONTROL_PLATES * plates)]
    free = np.flatnonzero(~np.isin(plate, without))
    each = int(share * len(plate))
    if each * guides > len(free):
        raise InputError(f"share must be small enough for {guides} guides and controls, such as 0.02; got {share!r}")
    guide = np.full(len(plate), -1)
    guide[rng.permutation(free)[: each * guides]] = np.repeat(np.arange(guides), each)
    return guide


def _noise(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Non-Gaussian noise, (n, d), and the standard deviation of each of its columns, (d,)."""
    z = np.empty((d, n), np.float32)  # each factor is contiguous in memory
    for j in range(d):
        law = j % 4
        if law < 2:  # the difference of two exponentials is Laplace, their sum a gamma of shape 2
            one, two = rng.standard_exponential((2, n), np.float32)
            z[j] = (one - two if law == 0 else one + two - 2) / np.float32(np.sqrt(2))
        elif law == 2:
            z[j] = (rng.random(n, np.float32) - np.float32(0.5)) * np.float32(np.sqrt(12))
        else:
            sides = np.where(rng.random(n, np.float32) < 0.5, np.float32(-0.9), np.float32(0.9))
            z[j] = sides + np.float32(np.sqrt(1 - 0.81)) * rng.standard_normal(n, np.float32)
    scales = np.exp(SCALE_SPREAD * rng.normal(size=d)).astype(np.float32)
    z *= scales[:, None]
    return np.ascontiguousarray(z.T), scales


def _effects(b: int, rng: np.random.Generator) -> Array:
    """The mean shift of each guide in standard deviations of the factors, (guides, b)."""
    rows, first = [], 0
    for guides, count, shift in GENES.values():
        gene = np.zeros(b, np.float32)
        gene[first : first + count] = shift * rng.choice([-1.0, 1.0], count)
        rows += [gene * np.exp(GUIDE_SPREAD * rng.normal()) for _ in range(guides)]
        first += count
    return np.array(rows, np.float32)


def _response(n: int, rng: np.random.Generator) -> Array:
    """The response of each perturbed row, (n, 1): 0, or a gamma of mean 1."""
    return ((rng.random(n) < RESPONDING) * rng.gamma(2.0, 0.5, n)).astype(np.float32)[:, None]


def _add_plates(z: Array, plate: Array, plates: int, rng: np.random.Generator) -> None:
    """Scale and shift technical factors, (n, t), by plate and by position on the plate."""
    t = z.shape[1]
    scales = np.exp(PLATE_SPREAD * rng.normal(size=(plates, t))).astype(np.float32)
    shifts = rng.laplace(0, PLATE_SHIFT / np.sqrt(2), (plates, t)).astype(np.float32)
    row, column = rng.integers(WELL_ROWS, size=len(z)), rng.integers(WELL_COLUMNS, size=len(z))
    edge = (row == 0) | (row == WELL_ROWS - 1) | (column == 0) | (column == WELL_COLUMNS - 1)
    z *= scales[plate]
    z += shifts[plate]
    z[:, 1::4] += (EDGE * edge).astype(np.float32)[:, None]
    z[:, 3::4] += (COLUMN * (2 * column / (WELL_COLUMNS - 1) - 1)).astype(np.float32)[:, None]


def _add_noise(x: Array, rng: np.random.Generator) -> None:
    for rows in np.array_split(x, max(1, len(x) // 2**14)):
        rows += np.float32(NOISE) * rng.standard_normal(rows.shape, np.float32)
