"""`check_blocks`: the criteria of mechanistic independence for blocks of latents, and which theorem applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from congruence.arrays import Float
from congruence.checks import check_choice, check_integer, check_number
from congruence.decoder.prepared_decoder import PreparedDecoder
from congruence.decoder.stretch import unseen_share
from congruence.errors import InputError, UnknownKeyError
from congruence.mechanism import _judge as judge
from congruence.mechanism import theorems
from congruence.mechanism._blocks import Blocks, read_blocks
from congruence.mechanism._criteria import ROUNDING_SINGLE, RTOL, SCALES, SINGLE, Tolerance, reachable_outputs
from congruence.mechanism._interactions import Separability
from congruence.mechanism._matroid import TOLERANCE
from congruence.mechanism._options import BUDGET
from congruence.mechanism.derivatives import classify_curvature, is_double, open_decoder
from congruence.mechanism.theorems import Criterion, CriterionNumbers, Irreducibility, Theorem, TheoremNumbers
from congruence.result import Finding, Record, Status

MOST_ORDER = 10  # of derivatives


class BlockCheckNumbers(TypedDict):
    """A check of blocks in JSON."""

    blocks: list[list[int]]
    points: int
    dimension: int
    outputs: int
    bending: str
    criteria: list[CriterionNumbers]
    irreducible: list[dict[str, Any]]
    separable: list[dict[str, Any]]
    theorems: list[TheoremNumbers]
    tolerance: dict[str, Any]
    injective: Status
    unseen: float
    nonzeros: list[int]
    contrast: float
    rho_plus: int | None
    rho_minus: float | None
    overlap: list[list[float]]


@dataclass(frozen=True, eq=False)
class BlockCheck(Record):
    """How the blocks of latents of a decoder act on its outputs.

    ``check["D"]`` is one criterion, ``check["theorem2_D"]`` the conclusion of one theorem, as in an examination.
    """

    blocks: Blocks
    points: int
    dimension: int
    outputs: int
    output_shape: tuple[int, ...]
    bending: str  # "smooth", "piecewise linear" or "affine"
    criteria: tuple[Criterion, ...]
    irreducible: tuple[Irreducibility, ...]
    separable: tuple[Separability, ...]
    theorems: tuple[Theorem, ...]
    tolerance: Tolerance
    injective: Status  # whether no direction is lost at any point
    nonzeros: tuple[int, int]  # fewest and most entries in the support of a Jacobian
    contrast: float  # of independent mechanism analysis, mean over points
    rho: tuple[int | None, float | None]  # rho+ and rho- at the worst point
    overlap: Float = field(repr=False)  # (K, K) share of outputs that two blocks both reach, mean over points
    sizes: Float = field(repr=False)  # (m, d) mean size of the entries of the Jacobian
    notes: tuple[str, ...] = ()

    NAMES = (
        *("blocks", "points", "dimension", "outputs", "bending", "criteria", "irreducible", "separable", "theorems"),
        *("tolerance", "injective", "unseen", "nonzeros", "contrast"),
    )

    @property
    def unseen(self) -> float:
        """The share of the latents below which regions may have been missed by all points (rule of three)."""
        return unseen_share(self.points)

    def parts(self) -> dict[str, Finding | Criterion]:
        """The criteria and the conclusions of the theorems, by name."""
        conclusions = {one.conclusion.name: one.conclusion for one in self.theorems}
        return {**{one.name: one for one in self.criteria}, **conclusions}

    def __getitem__(self, name: str) -> Any:
        """One criterion or the conclusion of one theorem by its name."""
        known = self.parts()
        if name not in known:
            raise UnknownKeyError(f"there is no criterion {name!r}; there are {', '.join(known)}")
        return known[name]

    def to_dict(self) -> Any:
        """All but the sizes of single entries, as in the JSON."""
        overlap = self.overlap.tolist()
        return super().to_dict() | {"rho_plus": self.rho[0], "rho_minus": self.rho[1], "overlap": overlap}


def check_orders(orders: Sequence[Any]) -> tuple[int, ...]:
    """Different orders of derivatives from 2 to `MOST_ORDER`."""
    checked = tuple(dict.fromkeys(check_integer("orders", order, 2) for order in orders))
    if max(checked, default=0) > MOST_ORDER:
        raise InputError(f"orders must be at most {MOST_ORDER}, as each order doubles the work; got {max(checked)}")
    return checked


def check_blocks(
    decoder: Any,
    z: Any,
    blocks: Any = None,
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    scale: str = "column",
    orders: Sequence[int] = (2, 3),
    budget: float = BUDGET,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> BlockCheck:
    """Check whether blocks of latents act on the outputs independently of each other, at points z.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...). A module must be in evaluation mode; it is not changed.
    z : (r, d)
        Points: latents sampled from the domain. Their distribution does not matter.
    blocks : list of lists of latents, or text like '0-1,2,3-4'
        Latents that form a factor; by default each latent is a block.
    rtol : float, optional
        Entries of a Jacobian up to rtol times its largest entry count as zero; mixed derivatives and cosines are
        compared with rtol as well. By default 1e-6, or the level of rounding, 2e-6, for a decoder that only works in
        float32. Smaller entries that are not zero are a remark on each criterion.
    atol : float
        Entries up to atol count as zero.
    scale : {"column", "global"}
        "column" compares entries after dividing each column by its length, so that units of latents do not matter. With
        "global" a block whose effect is weak as a whole may seem to reach nothing; a criterion is then ambiguous.
    orders : sequence of int, each at least 2
        Orders of the derivatives of Type H_n.
    budget : float
        Number of sets of rows tried at a point for the exact sparsity gap; beyond it only bounds are computed.
    chunk : as in `jacobians`
    device : as in `jacobians`
    seed : int
        Seed of random directions and searches.

    Returns
    -------
    BlockCheck
        The criteria D, M (in the coordinates and in the sparsest basis of the blocks), S, H_n and IMA, each `holds`,
        `fails`, `ambiguous` or `unknown`; and which of Theorems 2 to 5 applies. Each criterion is computed
        independently of the others.

    References
    ----------
    Matthes et al. 2026, "Mechanistic Independence"; Brady et al. 2023; Gresele et al. 2021 (IMA).
    """
    check_budget(rtol, budget)
    check_number("atol", atol, 0)
    check_choice("scale", scale, SCALES)
    orders = check_orders(orders)
    prepared = open_decoder(decoder, z, device)
    parts = read_blocks(blocks, prepared.dimension)
    wide = is_double(prepared)
    small = TOLERANCE if wide else SINGLE
    rtol = rtol if rtol is not None else RTOL if wide else ROUNDING_SINGLE
    survey = judge.survey_points(
        prepared, parts, rtol=rtol, atol=atol, scale=scale, chunk=chunk, tolerance=small, seed=seed
    )
    sparsity = judge.survey_sparsity(
        survey.jacobians, parts, survey.tolerance, budget=budget, tolerance=small, seed=seed
    )
    bending = classify_curvature(prepared, seed)
    finite = bending == "piecewise linear"
    (*criteria, orthogonal), irreducible = judge.judge_criteria(survey, sparsity, parts, reachable_outputs(decoder))
    for n in orders:
        one = judge.judge_interactions(prepared, parts, n, survey.tolerance, finite=finite, tolerance=small, seed=seed)
        criteria.append(one)
    criteria.append(orthogonal)
    separable, curved = judge.judge_separability(prepared, parts, orders, finite, small, seed)
    points = survey.at
    injective: Status = "fails" if points.lost.any() else "holds"
    nonzeros = int(points.nonzeros.min()), int(points.nonzeros.max())
    irreducible = (*irreducible, *curved)
    separable_by = {one.order: one.status for one in separable}
    worst = sparsity[0][criteria[3].worst or 0][0]  # of Type S
    return BlockCheck(
        blocks=parts,
        points=len(prepared.z),
        dimension=prepared.dimension,
        outputs=prepared.outputs,
        output_shape=prepared.output_shape,
        bending=bending,
        criteria=tuple(criteria),
        irreducible=irreducible,
        separable=separable,
        theorems=theorems.apply_theorems(criteria, irreducible, separable_by, injective, nonzeros[0]),
        tolerance=survey.tolerance,
        injective=injective,
        nonzeros=nonzeros,
        contrast=float(points.contrast.mean()),
        rho=(worst.rho_plus, worst.rho_minus),
        overlap=survey.overlap,
        sizes=survey.sizes,
        notes=tuple(_notes(prepared, finite, survey, len(sparsity[0]), wide)),
    )


def check_budget(rtol: float | None, budget: float) -> None:
    """Check the tolerance and the budget of `check_blocks` and `discover`."""
    if rtol is not None and not 0 <= rtol < 1:
        raise InputError(f"rtol must be at least 0 and below 1; got {rtol!r}")
    if not budget >= 0:
        raise InputError(f"budget must be a number of at least 0; got {budget!r}")


def _notes(prepared: PreparedDecoder, finite: bool, survey: judge.Survey, gaps: int, wide: bool) -> list[str]:
    points, lost = len(prepared.z), int((survey.at.lost > 0).sum())
    notes = {
        "The decoder works in float32 only, so small derivatives are less accurate.": not wide,
        "The decoder is piecewise linear: differences over one standard deviation replace derivatives.": finite,
        "No decade of tolerances leaves all supports unchanged: criteria on supports are uncertain.": (
            survey.tolerance.stable is None
        ),
        f"The sparsity gap was computed at {gaps} of {points} points.": gaps < points,
        "With at most as many outputs as latents, every Jacobian splits into single directions in some basis.": (
            prepared.outputs <= prepared.dimension
        ),
        f"The Jacobian loses a direction at {lost} of {points} points.": lost > 0,
    }
    return [note for note, applies in notes.items() if applies]
