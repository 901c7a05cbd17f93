"""Scores of snapshots before and after ICA, the agreement of seeds, and which weight decay and step each row takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes._isometry import measure_nearness
from congruence.experiments.recipes.claims import Estimate, over_seeds
from congruence.experiments.recipes.claims import difference as welch_difference
from congruence.experiments.recipes.disentanglement.trainings import ICA_WAYS, ImageStudy, ModelVariant, load_snapshots
from congruence.ica.latents import ACTIVE
from congruence.maps.matching import strong_mcc
from congruence.metrics._evaluate import evaluate
from congruence.metrics._infomec import active_codes, infomec
from congruence.metrics.factors import factor_columns, read_factors
from congruence.parts import Arrays

WAYS = ("raw", *ICA_WAYS)  # the codes themselves, and their components
SCORES = ("infom", "infoe", "infoc")
OTHER_SCORES = ("mig", "dci_disentanglement", "dci_completeness", "dci_informativeness")
NOTHING = np.full(2, np.nan)
NEAREST_ROWS = 2000  # that nearness of two seeds is measured on at most
WORSE = 10 * math.log10(2)  # decibels below the best candidate of a model: twice its squared error


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model with a weight decay at one step of its training, with all its seeds."""

    variant: ModelVariant
    snapshot: int
    step: int
    psnr: float  # mean over seeds
    scores: Float  # (seeds, ways, 3)
    agreement: Float  # (ways,) mean correlation of matched codes of two seeds; NaN for one seed
    nearness: Float  # (4,) permutation before and after ICA, rotation, and null, mean over pairs; NaN for one seed
    defects: Float  # (seeds,) isometry defects; NaN for discrete models
    active: float  # directions that the decoder uses, mean over seeds
    spectra: Float  # (seeds, latents) singular values; one row, their mean, of kept numbers before edition 4
    before_sigmoid: Float  # (2,) directions and defect of the logits, mean over seeds; NaN if not measured
    readouts: Float  # (seeds,) InfoM of least-squares readouts of the factors; NaN if not computed

    @property
    def defect(self) -> float:
        """The isometry defect, mean over seeds."""
        return float(self.defects.mean())

    def values(self, way: str, score: str = "infom") -> Float:
        """A score of every seed in one way, (seeds,)."""
        values: Float = self.scores[:, WAYS.index(way), SCORES.index(score)]
        return values

    def mean(self, way: str, score: str = "infom") -> float:
        """A score in one way, mean over seeds."""
        return float(self.values(way, score).mean())

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        names = ("permutation before", "permutation after", "rotation", "null")
        return {
            "weight_decay": self.variant.decay,
            "step": self.step,
            "psnr": self.psnr,
            "active": self.active,
            "isometry_defect": self.defects.tolist(),
            "singular": self.spectra.tolist(),
            "before_sigmoid": self.before_sigmoid.tolist(),
            **{f"infom_{way}": self.values(way).tolist() for way in WAYS},
            "infom_readouts": self.readouts.tolist(),
            "agreement": dict(zip(WAYS, self.agreement.tolist(), strict=True)),
            "nearness": dict(zip(names, self.nearness.tolist(), strict=True)),
        }


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """One row of the table: the chosen candidate of a model, with all its scores."""

    name: str
    candidate: Candidate
    way: str
    scores: Mapping[str, Float]  # of each score (seeds,)

    def values(self, score: str = "infom") -> Float:
        """A score of every seed, (seeds,)."""
        return self.scores[score]

    def interval(self, score: str = "infom") -> Estimate:
        """Mean and 95 % interval over seeds; NaN ends with one seed."""
        return over_seeds(self.values(score))

    def to_dict(self) -> dict[str, Any]:
        """The numbers as in result.json."""
        one = self.candidate
        numbers: dict[str, Any] = {"weight_decay": one.variant.decay, "step": one.step, "seeds": one.variant.seeds}
        numbers["psnr"] = one.psnr
        for score in (*SCORES, *OTHER_SCORES):
            mean, low, high = self.interval(score)
            numbers[score] = {"mean": mean, "low": low, "high": high, "of_seeds": self.values(score).tolist()}
        return numbers


def read_candidate(numbers: Mapping[str, Any], snapshot: int) -> Candidate:
    """The autoencoder that `Candidate.to_dict` wrote; only its InfoM is kept."""
    infom = np.array([numbers[f"infom_{way}"] for way in WAYS], dtype=float).T  # (seeds, ways)
    spare = np.full(infom.shape, np.nan)
    columns = {name: np.array(list(numbers[name].values()), dtype=float) for name in ("agreement", "nearness")}
    return Candidate(
        variant=ModelVariant("ae", numbers["weight_decay"], len(infom)),
        snapshot=snapshot,
        step=numbers["step"],
        psnr=numbers["psnr"],
        scores=np.stack([infom, spare, spare], axis=2),
        defects=np.array(numbers["isometry_defect"], dtype=float),
        active=math.nan if numbers["active"] is None else numbers["active"],
        spectra=np.atleast_2d(np.array(numbers["singular"], dtype=float)),
        before_sigmoid=np.array(numbers.get("before_sigmoid", NOTHING), dtype=float),
        readouts=np.array(numbers["infom_readouts"], dtype=float),
        **columns,
    )


def read_row(name: str, numbers: Mapping[str, Any], chosen: Candidate | None, way: str, model: str) -> ScoreRow:
    """The row that `ScoreRow.to_dict` wrote; without a `chosen` autoencoder only its settings and scores are known."""
    if chosen is None:
        nothing, seeds = np.full(0, np.nan), numbers["seeds"]
        kept = (numbers["step"], numbers["psnr"], np.full((seeds, 1, 3), np.nan), nothing, nothing)
        variant = ModelVariant(model, numbers["weight_decay"], seeds)
        chosen = Candidate(variant, -1, *kept, nothing, math.nan, nothing, NOTHING, nothing)
    scores = {score: np.array(numbers[score]["of_seeds"], dtype=float) for score in (*SCORES, *OTHER_SCORES)}
    return ScoreRow(name, chosen, way, scores)


def _codes(snapshot: Arrays, way: str) -> Float:
    """The codes of a snapshot, before rounding ("continuous"), or their components.

    "ica-ten" are components rounded to ten values over their range.
    """
    codes = snapshot["continuous" if way == "continuous" else "codes"].astype(np.float64)
    if way in ("raw", "continuous"):
        return codes
    if way == "ica-ten":
        exact = _codes(snapshot, "ica")
        low, high = exact.min(0), exact.max(0)
        return np.asarray(np.minimum(np.floor(10 * (exact - low) / np.maximum(high - low, 1e-12)), 9))
    components: Float = (codes - snapshot[f"{way}_mean"]) @ snapshot[f"{way}_unmixing"].T
    return components


def _ways(variant: ModelVariant) -> tuple[str, ...]:
    return WAYS if variant.model == "ae" else ("raw",)  # ICA is applied to the autoencoder only


def score_training(study: ImageStudy, variant: ModelVariant, number: int) -> Arrays:
    """InfoM, InfoE and InfoC of a training in every snapshot and way; PSNR, and the decoder's spectrum.

    "scores" (snapshots, ways, 3), "psnr" (snapshots,), "nmi_WAY" (snapshots, K, codes) padded with NaN, and "spectrum"
    (snapshots, latents), "active" and "defect" (snapshots,), see `summarise_spectrum`.
    """

    def compute() -> Arrays:
        snapshots = load_snapshots(study, variant, number)
        (factors, kinds), ways, n = study.factors(), _ways(variant), len(snapshots)
        arrays: Arrays = {"psnr": np.array([float(one["psnr"]) for one in snapshots])}
        arrays["scores"] = np.full((n, len(ways), len(SCORES)), np.nan)
        arrays |= {f"nmi_{way}": np.full((n, len(factors), snapshots[0]["codes"].shape[1]), np.nan) for way in ways}
        for i, snapshot in enumerate(snapshots):
            for j, way in enumerate(ways):
                codes = _codes(snapshot, way)
                one = infomec(codes, factors, kinds=kinds, discrete_codes=variant.is_discrete, seed=study.seed)
                modularity = mean_modularity(one.modularity_per_code, len(factors))
                arrays["scores"][i, j] = modularity, one.explicitness, one.compactness
                arrays[f"nmi_{way}"][i, :, : codes.shape[1]] = one.nmi
        if "singular" in snapshots[0]:
            columns = zip(*(summarise_spectrum(one["singular"]) for one in snapshots), strict=True)
            arrays |= {name: np.array(one, float) for name, one in zip(_SPECTRUM, columns, strict=True)}
            arrays["before_sigmoid"] = np.array([summarise_spectrum(one["logits"])[1:] for one in snapshots])
        return arrays

    return study.parts.get(f"{study.name(variant, number)}-scores", compute)


_SPECTRUM = ("spectrum", "active", "defect")


def mean_modularity(per_code: Float, k: int) -> float:
    """InfoM from the largest shares of codes; codes without information about any factor (NaN) are skipped."""
    if k < 2 or not np.isfinite(per_code).any():
        return math.nan
    return float((np.nanmean(per_code) - 1 / k) / (1 - 1 / k))


def summarise_spectrum(singular: Float) -> tuple[Float, int, float]:
    """Singular values (points, latents) of the decoder's Jacobian in three numbers.

    The root mean square over points of the largest, the second and so on, (latents,); how many of these are active,
    above a twentieth of the first; and the isometry defect: the standard deviation of the logarithm of the active ones
    over points and directions. 0 is an isometry up to one scale; at 0.5 stretches differ by e^0.5 = 1.6.
    """
    sizes: Float = np.sqrt((singular**2).mean(0))
    active = max(1, int((sizes > ACTIVE * sizes[0]).sum()))
    return sizes, active, float(np.log(np.maximum(singular[:, :active], np.finfo(float).tiny)).std())


def score_readouts(study: ImageStudy, variant: ModelVariant, number: int) -> Arrays:
    """InfoM (snapshots,) of least-squares readouts of all factors from the codes, a supervised reference for ICA.

    Targets are cosine and sine of circular factors, and classes as 0 and 1.
    """

    def compute() -> Arrays:
        factors, kinds = study.factors()
        targets = factor_columns(read_factors(factors, kinds), unordered=True).values
        scores = []
        for snapshot in load_snapshots(study, variant, number):
            x = np.column_stack([np.ones(len(targets)), snapshot["codes"]])
            readout = x @ np.linalg.lstsq(x, targets, rcond=None)[0]
            one = infomec(readout / targets.std(0), factors, kinds=kinds, seed=study.seed)
            scores.append(mean_modularity(one.modularity_per_code, len(factors)))
        return {"infom": np.array(scores)}

    return study.parts.get(f"{study.name(variant, number)}-readouts", compute)


def score_agreement(study: ImageStudy, variant: ModelVariant) -> Arrays:
    """How near the codes of two seeds are, before and after ICA, in every snapshot and for every pair of seeds.

    "mcc" (snapshots, pairs, ways): mean |correlation| of active codes matched one to one; "nearness" (snapshots, pairs,
    3): held-out error over the diameter up to a signed permutation before and after ICA ("ica"), and up to a rotation
    before, which is the least that ICA can reach; "null" (snapshots, pairs) of the second.
    """

    def compute() -> Arrays:
        seeds = [load_snapshots(study, variant, number) for number in range(variant.seeds)]
        pairs, n = list(combinations(seeds, 2)), len(study.steps)
        arrays: Arrays = {"mcc": np.full((n, len(pairs), len(WAYS)), np.nan)}
        arrays |= {"nearness": np.full((n, len(pairs), 3), np.nan), "null": np.full((n, len(pairs)), np.nan)}
        for i in range(n):
            for p, pair in enumerate(pairs):
                codes = {way: [_codes(seed[i], way) for seed in pair] for way in WAYS}
                for j, way in enumerate(WAYS):
                    active = (x[:, active_codes(x, discrete_codes=False, version="standalone")] for x in codes[way])
                    arrays["mcc"][i, p, j] = strong_mcc(*active)
                near = partial(measure_nearness, seed=study.seed)
                (x, y), (u, v) = ([one[:NEAREST_ROWS] for one in codes[way]] for way in ("raw", "ica"))
                raw, ica = near(x, y, "permutation", "rigid"), near(u, v, "permutation")
                nearness = (raw["permutation"], ica["permutation"], raw["rigid"])
                arrays["nearness"][i, p] = [one.held_out.mean for one in nearness]
                arrays["null"][i, p] = ica["permutation"].null
        return arrays

    return study.parts.get(f"{study.data}-{variant.key}-agreement", compute)


def score_chosen(study: ImageStudy, variant: ModelVariant, number: int, snapshot: int, way: str) -> Arrays:
    """All scores of one chosen snapshot, with DCI and MIG."""

    def compute() -> Arrays:
        factors, kinds = study.factors()
        result = evaluate(
            _codes(load_snapshots(study, variant, number)[snapshot], way),
            factors,
            kinds=kinds,
            metrics=("infomec", "mig", *(["dci"] if study.parameters["dci"] else [])),
            dci_model="forest",
            discrete_codes=(variant.is_discrete and way == "raw") or way == "ica-ten",
            resamples=0,
            nulls=0,
            slow_nulls=0,
            structural=False,
            seed=study.seed,
        )
        scores = {one.score: one.value for one in result.scores}
        return {name: np.asarray(scores.get(name, math.nan)) for name in (*SCORES, *OTHER_SCORES)}

    name = f"{study.name(variant, number)}-step{study.steps[snapshot]}-{way}-judged"
    return study.parts.get(name, compute)


def information_matrix(scores: Arrays, snapshot: int, way: str) -> Array:
    """The normalised mutual information (K, codes) of a snapshot in one way, without the padding."""
    nmi = scores[f"nmi_{way}"][snapshot]
    matrix: Array = nmi[:, np.isfinite(nmi).all(0)]
    return matrix


def make_candidates(study: ImageStudy, variant: ModelVariant) -> list[Candidate]:
    """Every snapshot of a variant, from the scores of its seeds and, of the autoencoder, agreement and readouts."""
    numbers, is_plain = range(variant.seeds), variant.model == "ae"
    scores = [score_training(study, variant, number) for number in numbers]
    pairs = score_agreement(study, variant) if is_plain and variant.seeds > 1 else None
    readouts = [score_readouts(study, variant, number)["infom"] for number in numbers] if is_plain else None
    continuous = "defect" in scores[0]

    def stack(name: str, i: int) -> Float:
        return np.array([one[name][i] for one in scores])

    candidates = []
    for i, step in enumerate(study.steps):
        nearness, agreement = np.full(4, np.nan), np.full(len(_ways(variant)), np.nan)
        if pairs is not None:
            nearness = np.append(pairs["nearness"][i].mean(0), pairs["null"][i].mean())
            agreement = agreement if np.isnan(nearness[0]) else pairs["mcc"][i].mean(0)
        one = Candidate(
            variant=variant,
            snapshot=i,
            step=step,
            psnr=float(stack("psnr", i).mean()),
            scores=stack("scores", i),
            agreement=agreement,
            nearness=nearness,
            defects=stack("defect", i) if continuous else np.full(variant.seeds, np.nan),
            active=float(stack("active", i).mean()) if continuous else math.nan,
            spectra=stack("spectrum", i) if continuous else np.zeros((variant.seeds, 0)),
            before_sigmoid=stack("before_sigmoid", i).mean(0) if continuous else NOTHING,
            readouts=np.array([math.nan] if readouts is None else [one[i] for one in readouts]),
        )
        candidates.append(one)
    return candidates


def keep_reconstructing(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those with at most twice the squared error of the best reconstruction."""
    best = max(one.psnr for one in candidates)
    return [one for one in candidates if one.psnr >= best - WORSE]


def choose(candidates: Sequence[Candidate], way: str) -> Candidate:
    """The candidate of one model with the highest InfoM among those that reconstruct, see `keep_reconstructing`."""
    return max(keep_reconstructing(candidates), key=lambda one: np.nan_to_num(one.mean(way), nan=-math.inf))


def choose_by_agreement(candidates: Sequence[Candidate]) -> Candidate | None:
    """Without labels: the candidate whose seeds agree best after ICA; None with one seed."""
    agreement = {one: float(one.agreement[WAYS.index("ica")]) for one in keep_reconstructing(candidates)}
    known = [one for one, value in agreement.items() if math.isfinite(value)]
    return max(known, key=agreement.__getitem__, default=None)


def choose_by_isometry(candidates: Sequence[Candidate]) -> Candidate:
    """Without labels, and with one seed: the candidate whose decoder is closest to an isometry."""
    return min(keep_reconstructing(candidates), key=lambda one: one.defect)


def mean_over_data(values: Sequence[Float]) -> Estimate:
    """Mean over data sets of the means of their seeds, and a 95 % interval from how seeds differ on each.

    NaN ends if one of them has a single seed.
    """
    from scipy.stats import t

    mean = float(np.mean([one.mean() for one in values]))
    freedom = sum(len(one) - 1 for one in values)
    if min(map(len, values)) < 2:
        return Estimate(mean, math.nan, math.nan)
    variance = sum(float(((one - one.mean()) ** 2).sum()) for one in values) / freedom
    error = math.sqrt(sum(variance / len(one) for one in values)) / len(values)
    half = float(t.ppf(0.975, freedom)) * error
    return Estimate(mean, mean - half, mean + half)


def difference(first: ScoreRow, second: ScoreRow) -> Estimate:
    """How much higher the InfoM of one row is than that of another, with a 95 % interval over seeds.

    Paired if both rows are of the same trainings, else by Welch's t. NaN ends if either has one seed.
    """
    a, b = first.values(), second.values()
    one, other = first.candidate, second.candidate
    if one is other or (one.variant, one.snapshot) == (other.variant, other.snapshot):
        return over_seeds(a - b)
    return welch_difference(a, b)
