"""What `disentanglement` measures of codes: scores before and after ICA, the decoder's spectrum, agreement of seeds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes.bilipschitz_pairs import nearness_up_to
from congruence.experiments.recipes.disentanglement_trainings import UNMIXED, Bench, Setting, looks
from congruence.ica.latents import ACTIVE
from congruence.maps.matching import strong_mcc
from congruence.metrics._evaluate import evaluate
from congruence.metrics._infomec import active_codes, infomec
from congruence.metrics.factors import factor_columns, read_factors
from congruence.parts import Arrays

WAYS = ("raw", *UNMIXED)  # the codes themselves, and their components
SCORES = ("infom", "infoe", "infoc")
BESIDE = ("mig", "dci_disentanglement", "dci_completeness", "dci_informativeness")
NEAR_ROWS = 2000  # that nearness of two seeds is measured on at most


def transformed(look: Arrays, way: str) -> Float:
    """The codes of a look as they are, or their components."""
    codes = look["codes"].astype(np.float64)
    if way == "raw":
        return codes
    found: Float = (codes - look[f"{way}_mean"]) @ look[f"{way}_unmixing"].T
    return found


def ways_of(setting: Setting) -> tuple[str, ...]:
    """Which ways there are: ICA is for the autoencoder."""
    return WAYS if setting.model == "ae" else ("raw",)


def scored(bench: Bench, setting: Setting, number: int) -> Arrays:
    """InfoM, InfoE and InfoC of a training at every look, in every way; PSNR, and the decoder's spectrum.

    "scores" (looks, ways, 3), "psnr" (looks,), "counted" (looks, ways): active codes, "nmi_WAY" (looks, K, codes)
    padded with NaN, and "spectrum" (looks, latents), "active" and "defect" (looks,), see `spectrum`.
    """
    return bench.parts.get(f"{bench.name(setting, number)}-scores", lambda: _scored(bench, setting, number))


def _scored(bench: Bench, setting: Setting, number: int) -> Arrays:
    seen, (factors, kinds), ways = looks(bench, setting, number), bench.factors(), ways_of(setting)
    width = seen[0]["codes"].shape[1]
    found: Arrays = {"psnr": np.array([float(look["psnr"]) for look in seen])}
    found["scores"] = np.full((len(seen), len(ways), len(SCORES)), np.nan)
    found["counted"] = np.zeros((len(seen), len(ways)), int)
    found |= {f"nmi_{way}": np.full((len(seen), len(factors), width), np.nan) for way in ways}
    for i, look in enumerate(seen):
        for j, way in enumerate(ways):
            codes = transformed(look, way)
            one = infomec(codes, factors, kinds=kinds, discrete_codes=setting.is_discrete, seed=bench.seed)
            found["scores"][i, j] = (
                modularity_of(one.modularity_per_code, len(factors)),
                one.explicitness,
                one.compactness,
            )
            found["counted"][i, j] = one.active.sum()
            found[f"nmi_{way}"][i, :, : codes.shape[1]] = one.nmi
    if "singular" in seen[0]:
        spectra = [spectrum(look["singular"]) for look in seen]
        found["spectrum"] = np.stack([one[0] for one in spectra])
        found["active"], found["defect"] = (np.array([one[k] for one in spectra], float) for k in (1, 2))
    return found


def modularity_of(per_code: Float, k: int) -> float:
    """InfoM from the largest shares of codes; one that tells nothing of any factor, which has none, is skipped."""
    if k < 2 or not np.isfinite(per_code).any():
        return float("nan")
    return float((np.nanmean(per_code) - 1 / k) / (1 - 1 / k))


def readouts(bench: Bench, setting: Setting, number: int) -> Arrays:
    """What a linear map that knows the factors makes of the codes at each look: "infom" (looks,), a mark for ICA.

    Its codes are the least-squares readouts of all factors: cosine and sine of circular ones, classes as 0 and 1.
    """
    return bench.parts.get(f"{bench.name(setting, number)}-readouts", lambda: _readouts(bench, setting, number))


def _readouts(bench: Bench, setting: Setting, number: int) -> Arrays:
    factors, kinds = bench.factors()
    targets = factor_columns(read_factors(factors, kinds), unordered=True).values
    found = []
    for look in looks(bench, setting, number):
        x = np.column_stack([np.ones(len(targets)), look["codes"]])
        read = x @ np.linalg.lstsq(x, targets, rcond=None)[0]
        one = infomec(read / targets.std(0), factors, kinds=kinds, seed=bench.seed)
        found.append(modularity_of(one.modularity_per_code, len(factors)))
    return {"infom": np.array(found)}


def spectrum(singular: Float) -> tuple[Float, int, float]:
    """Singular values (points, latents) of the decoder's Jacobian in three numbers.

    The root of the mean square over points of the largest, the second and so on, (latents,); how many of these are
    active, above a twentieth of the first; and the isometry defect: the standard deviation of the logarithm of the
    active ones over points and directions. 0 is an isometry up to one scale; at 0.5 stretches differ by e^0.5 = 1.6.
    """
    sizes: Float = np.sqrt((singular**2).mean(0))
    active = max(1, int((sizes > ACTIVE * sizes[0]).sum()))
    least = np.finfo(float).tiny
    return sizes, active, float(np.log(np.maximum(singular[:, :active], least)).std())


def agreement(bench: Bench, setting: Setting) -> Arrays:
    """How near the codes of two seeds are, before and after ICA, at every look and for every pair of seeds.

    "mcc" (looks, pairs, ways): mean |correlation| of active codes matched one to one; "nearness" (looks, pairs, 3):
    held-out error over the diameter up to a signed permutation before and after ICA ("ica"), and up to a rotation
    before, which is the least that ICA can reach; "null" (looks, pairs) of the second.
    """
    return bench.parts.get(f"{bench.data}-{setting.key}-agreement", lambda: _agreement(bench, setting))


def _agreement(bench: Bench, setting: Setting) -> Arrays:
    seen = [looks(bench, setting, number) for number in range(setting.seeds)]
    pairs = list(combinations(range(setting.seeds), 2))
    found: Arrays = {"mcc": np.full((len(bench.steps), len(pairs), len(WAYS)), np.nan)}
    found |= {"nearness": np.full((len(bench.steps), len(pairs), 3), np.nan)}
    found |= {"null": np.full((len(bench.steps), len(pairs)), np.nan)}
    for i in range(len(bench.steps)):
        for p, (a, b) in enumerate(pairs):
            for j, way in enumerate(WAYS):
                found["mcc"][i, p, j] = strong_mcc(*(_counted(transformed(seen[one][i], way)) for one in (a, b)))
            near = [_nearness(seen[a][i], seen[b][i], *how, bench.seed) for how in _HOW]
            found["nearness"][i, p] = [one.held_out.mean for one in near]
            found["null"][i, p] = near[1].null
    return found


_HOW = (("raw", "permutation"), ("ica", "permutation"), ("raw", "rigid"))


def _nearness(one: Arrays, other: Arrays, way: str, group: str, seed: int) -> Any:
    x, y = (transformed(look, way)[:NEAR_ROWS] for look in (one, other))
    return nearness_up_to(group, x, y, seed)


def _counted(codes: Float) -> Float:
    """The codes that InfoMEC would count."""
    found: Float = codes[:, active_codes(codes, discrete_codes=False, version="standalone")]
    return found


def judged(bench: Bench, setting: Setting, number: int, look: int, way: str) -> Arrays:
    """All scores of one chosen look, with intervals over rows: value, low and high of each, and DCI and MIG."""
    name = f"{bench.name(setting, number)}-step{bench.steps[look]}-{way}-judged"
    return bench.parts.get(name, lambda: _judged(bench, setting, number, look, way))


def _judged(bench: Bench, setting: Setting, number: int, look: int, way: str) -> Arrays:
    factors, kinds = bench.factors()
    result = evaluate(
        transformed(looks(bench, setting, number)[look], way),
        factors,
        kinds=kinds,
        metrics=("infomec", "mig", *(["dci"] if bench.parameters["dci"] else [])),
        dci_model="forest",
        discrete_codes=setting.is_discrete,
        resamples=bench.parameters["resamples"],
        nulls=0,
        slow_nulls=0,
        structural=False,
        seed=bench.seed,
    )
    found = {one.score: np.array([one.value, one.low, one.high]) for one in result.scores}
    return {name: found.get(name, np.full(3, np.nan)) for name in (*SCORES, *BESIDE)}


def matrix(scores: Arrays, look: int, way: str) -> Array:
    """The shares (K, codes) of a look in one way, without the padding."""
    nmi = scores[f"nmi_{way}"][look]
    found: Array = nmi[:, np.isfinite(nmi).all(0)]
    return found
