"""The claims of section 4.3 and appendix A.7.3, judged by our numbers, with the notes and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.document import Table, share
from congruence.experiments.recipes.claims import Claim, Estimate, over_seeds, read_claims
from congruence.experiments.recipes.claims import difference as between
from congruence.experiments.recipes.disentanglement.scores import (
    OTHER_SCORES,
    SCORES,
    WAYS,
    ScoreRow,
    difference,
    keep_reconstructing,
    mean_over_data,
)
from congruence.experiments.recipes.result import estimate_cell, number_table
from congruence.formatting import number
from congruence.result import Finding
from congruence.stats.intervals import rank_correlation_interval

if TYPE_CHECKING:
    from congruence.experiments.recipes.disentanglement.run import DisentanglementScores

DRAWS = 1000  # of the bootstrap over trainings
CLAIMS = read_claims("disentanglement")
PUBLISHED = {  # InfoM, InfoE, InfoC of table 2; aggregated, Shapes3D, MPI3D, Falcor3D, Isaac3D
    "AE": ((0.39, 0.76, 0.25), (0.34, 0.99, 0.16), (0.42, 0.40, 0.31), (0.37, 0.83, 0.20), (0.41, 0.80, 0.34)),
    "β-VAE": ((0.59, 0.81, 0.55), (0.59, 0.99, 0.49), (0.45, 0.71, 0.51), (0.71, 0.73, 0.70), (0.60, 0.80, 0.51)),
    "β-TCVAE": ((0.58, 0.72, 0.59), (0.61, 0.82, 0.62), (0.51, 0.60, 0.57), (0.66, 0.74, 0.71), (0.54, 0.70, 0.46)),
    "BioAE": ((0.54, 0.75, 0.36), (0.56, 0.98, 0.44), (0.45, 0.66, 0.36), (0.54, 0.73, 0.31), (0.63, 0.65, 0.33)),
    "AE + ICA": ((0.65, 0.83, 0.40), (0.79, 0.99, 0.52), (0.44, 0.66, 0.31), (0.71, 0.83, 0.33), (0.64, 0.82, 0.43)),
}
PUBLISHED_ON = {"aggregated": "aggregated", "shapes3d": "Shapes3D", "mpi3d": "MPI3D", "falcor3d": "Falcor3D"}
PUBLISHED_ON |= {"isaac3d": "Isaac3D"}
HEADS = {"infom": "InfoM", "infoe": "InfoE", "infoc": "InfoC", "mig": "MIG", "dci_disentanglement": "DCI, D"}
HEADS |= {"dci_completeness": "DCI, C", "dci_informativeness": "DCI, I"}
ORDER = ("AE", "β-VAE", "β-TCVAE", "BioAE", "AE + ICA", "AE + ICA, not centred", "AE + ICA, whitened")
QUANTISED = ("VQ-VAE", "VQ-VAE with weight decay", "QLAE", "QLAE, not rounded", "AE + ICA, ten values")


def headlines(results: Sequence[DisentanglementScores]) -> tuple[str, ...]:
    """The best model on each data set, and the score of a plain autoencoder."""
    sentences = []
    for one in results:
        contest = (one.rows["AE + ICA"], one.best_other)
        first, *rest = sorted(contest, key=lambda row: -row.interval()[0])
        after = " and ".join(f"{row.name} with {row.interval()}" for row in rest)
        best = one.best_quantised
        sentences.append(
            f"On {one.data} {first.name} has the highest InfoM of the models of table 2, {first.interval()}, "
            f"followed by {after}; a plain autoencoder has {one.rows['AE'].interval()}, and with quantised latents "
            f"{best.name} {best.interval()}."
        )
    return tuple(sentences)


def judge(result: DisentanglementScores, seed: int) -> tuple[Finding, ...]:
    """Judge the claims of the paper by the numbers of one data set."""
    return (
        _judge_gain(CLAIMS["{data}: ica-raises-infom"], result, "AE + ICA"),
        _judge_gain(CLAIMS["{data}: whitened-ica-raises-infom"], result, "AE + ICA, whitened"),
        _judge_against(result, result.best_other),
        _judge_inactive(result),
        _judge_isometry(result, seed),
        _judge_choice(result),
        *([_judge_rounding(result)] if "AE + ICA, ten values" in result.rows else []),
    )


def _judge_gain(claim: Claim, result: DisentanglementScores, row: str) -> Finding:
    plain, ica = result.rows["AE"], result.rows[row]
    gap = difference(ica, plain)
    before, after = ica.candidate.values("raw"), ica.candidate.values(ica.way)
    same = ", ".join(f"{number(a, 2)} to {number(b, 2)}" for a, b in zip(before, after, strict=True))
    read = float(ica.candidate.readouts.mean())
    return claim.about(data=result.data).judge(
        gap,
        null=0.0,
        evidence=f"AE {plain.interval()}, {row} {ica.interval()}: a gain of {gap}, each at its own weight decay "
        f"and step. For the trainings of the latter, seed by seed, InfoM goes from {same}; a supervised linear map of "
        f"the same codes reaches {number(read, 2)}.",
    )


def _judge_against(result: DisentanglementScores, other: ScoreRow) -> Finding:
    ica = result.rows["AE + ICA"]
    gap = difference(ica, other)
    winner = ica.name if gap.value > 0 else other.name
    claim = CLAIMS["{data}: ica-beats-specialised"].about(data=result.data)
    return claim.judge(
        gap,
        null=0.0,
        evidence=f"The best of these is {other.name}, InfoM {other.interval()}; AE + ICA has "
        f"{ica.interval()}: a difference of {gap}. {winner} is better here.",
    )


def _judge_inactive(result: DisentanglementScores) -> Finding:
    spectra = np.maximum(result.rows["AE + ICA"].candidate.spectra, np.finfo(float).tiny)  # (seeds, latents)
    sizes = spectra.mean(0) / spectra[:, 0].mean()
    edge = int((sizes[:-1] / sizes[1:]).argmax()) + 1
    gap, spread = (over_seeds(spectra[:, i] / spectra[:, j]) for i, j in ((edge - 1, edge), (0, edge - 1)))
    claim = CLAIMS["{data}: inactive-latents-are-obvious"].about(data=result.data)
    return claim.judge(
        gap,
        spread,
        evidence=f"Singular values divided by the largest, mean over codes and seeds: "
        f"{', '.join(number(s, 2) for s in sizes)}. The widest gap is after the first {edge} (a factor of "
        f"{gap}), which differ by a factor of {spread}.",
    )


def _judge_isometry(result: DisentanglementScores, seed: int) -> Finding:
    defects = np.concatenate([one.defects for one in result.last])
    scores = np.concatenate([one.values("ica") for one in result.last])
    rank = Estimate(*rank_correlation_interval(defects, scores, DRAWS, [seed, 31]))
    claim = CLAIMS["{data}: isometry-helps"].about(data=result.data)
    return claim.judge(
        rank,
        null=0.0,
        evidence=f"Rank correlation of isometry defect and InfoM of AE + ICA over {len(defects)} autoencoders at the "
        f"last step: {rank}.",
    )


def _judge_choice(result: DisentanglementScores) -> Finding:
    best = result.rows["AE + ICA"].candidate
    rules = result.without_labels
    first = next(iter(rules.values()))
    paired = best.values("ica") - first.values("ica") if best is first else None
    lost = over_seeds(paired) if paired is not None else between(best.values("ica"), first.values("ica"))
    claim = CLAIMS["{data}: labels-are-not-needed"].about(data=result.data)
    return claim.judge(
        lost,
        evidence=f"InfoM of AE + ICA is {number(best.mean('ica'), 2)} if chosen with labels, and "
        + ", ".join(
            f"{number(one.mean('ica'), 2)} by {rule} (weight decay {one.variant.decay:g}, step {one.step})"
            for rule, one in rules.items()
        )
        + f". The first of these loses {lost}.",
    )


def _judge_rounding(result: DisentanglementScores) -> Finding:
    rows = [result.rows[name] for name in ("AE + ICA, ten values", "AE + ICA", "QLAE", "QLAE, not rounded")]
    rounded, exact, qlae, unrounded = (row.interval() for row in rows)
    claim = CLAIMS["{data}: rounding-raises-infom"].about(data=result.data)
    gain = over_seeds(rows[0].values() - rows[1].values())
    return claim.judge(
        gain,
        null=0.0,
        evidence=f"AE + ICA has {exact}, and {rounded} if rounded: a difference of {gain}, seed by seed. "
        f"QLAE has {qlae}; the codes of the same trainings before they are rounded have {unrounded}.",
    )


def note_data(results: Sequence[DisentanglementScores]) -> tuple[str, ...]:
    """What the data are, and which of them are not the paper's."""
    twins = [one.data for one in results if one.data in ("rooms", "sprites")]
    notes = []
    if twins:
        notes.append(
            f"{' and '.join(twins)} {'is' if len(twins) == 1 else 'are'} drawn by this package and not among the four "
            "data sets of the paper: the paper's numbers are shown for orientation, in a separate table."
        )
    return (*notes, *(f"{one.data}: {one.note}." for one in results if one.note))


def make_tables(results: Sequence[DisentanglementScores]) -> tuple[Table, ...]:
    """All tables."""
    ours = [table for one in results for table in (_score_table(one), _grid_table(one), _choice_table(one))]
    together = [_aggregated_table(results)] if len(results) > 1 else []
    return (*together, *ours, _published_table())


def _score_table(result: DisentanglementScores) -> Table:
    """As in the appendix: continuous models, then discrete ones."""
    head = ("model", "chosen", *(HEADS[name] for name in (*SCORES, *OTHER_SCORES)), "PSNR", "seeds")
    rows: list[tuple[Any, ...]] = []
    for name in (name for name in (*ORDER, *QUANTISED) if name in result.rows):
        if name == QUANTISED[0]:
            rows.append(("discrete latent models", *[None] * (len(head) - 1)))
        row, one = result.rows[name], result.rows[name].candidate
        scores = [estimate_cell(row.interval(score)) for score in (*SCORES, *OTHER_SCORES)]
        chosen = f"weight decay {one.variant.decay:g}, step {one.step}"
        rows.append((name, chosen, *scores, one.psnr, one.variant.seeds))
    note = (
        f"Ours, on {result.data} ({result.note}). Means over seeds with their 95 % interval; models with one seed "
        "have none. DCI by random forests."
    )
    return number_table(f"Scores on {result.data}", head, rows, note)


def _aggregated_table(results: Sequence[DisentanglementScores]) -> Table:
    """Means over data sets; intervals come from how seeds differ on each."""
    data = ", ".join(one.data for one in results)
    rows = [
        (name, data, *(estimate_cell(mean_over_data([one.rows[name].values(s) for one in results])) for s in SCORES))
        for name in (*ORDER, *QUANTISED)
        if all(name in one.rows for one in results)
    ]
    head = ("model", "data", *(HEADS[name] for name in SCORES))
    note = (
        "Means over data sets with their 95 % interval, were other seeds taken on the same data; models with one seed "
        "on any of them have none. Each data set has its own choices."
    )
    return number_table("Aggregated over data sets", head, rows, note)


def _published_table() -> Table:
    head = ("model", "whose", *PUBLISHED_ON.values())
    rows = tuple(
        (
            name,
            "quoted from Hsu et al. 2023" if name.startswith(("β", "Bio")) else "the paper's own",
            *(" ".join(f"{value:.2f}" for value in scores) for scores in of),
        )
        for name, of in PUBLISHED.items()
    )
    note = (
        "InfoM InfoE InfoC as the paper prints them, on other data sets than ours: for orientation, not to be compared "
        "number by number. The numbers of VQ-VAE and QLAE in its appendix are not known to us."
    )
    return number_table("What the paper prints (other data)", head, rows, note)


def _grid_table(result: DisentanglementScores) -> Table:
    """The argument in numbers: each weight decay at the last step."""
    head = ["weight decay", "step", "PSNR", "active latents", "isometry defect", "active before the sigmoid"]
    head += ["isometry defect before it", "InfoM, AE", "InfoM, AE + ICA"]
    head += ["InfoM, not centred", "InfoM, whitened", "InfoM, readouts", "agreement of seeds, AE", "AE + ICA"]
    head += ["not centred", "whitened", "nearness, AE", "nearness, AE + ICA", "up to a rotation", "null"]
    kept = keep_reconstructing(result.grid)
    rows = []
    for one in result.last:
        cells: list[Any] = [f"{one.variant.decay:g}", f"{one.step}" + ("" if one in kept else ", blurred")]
        cells += [one.psnr, one.active, one.defect, *map(float, one.before_sigmoid)]
        cells += [*(one.mean(way) for way in WAYS), float(one.readouts.mean())]
        cells += [float(value) for value in one.agreement]
        rows.append([*cells, *(share(float(value)) for value in one.nearness)])
    note = (
        "The autoencoder at its last step, means over seeds. Readouts: supervised least squares on all factors, also "
        "those hardly encoded; an indication of what a linear map can reach, not a bound. Nearness of codes of two "
        "seeds up to a signed permutation (held out, % of the diameter), before and after ICA, and up to the best "
        "rotation. Blurred: dropped by the reconstruction filter."
    )
    return number_table(f"Weight decay, isometry and factors on {result.data}", head, rows, note)


def _choice_table(result: DisentanglementScores) -> Table:
    head = ("rule", "labels", "weight decay", "step", "InfoM of AE + ICA", "agreement of seeds", "isometry defect")
    chosen = {("highest InfoM of AE + ICA", "yes"): result.rows["AE + ICA"].candidate}
    chosen[("highest InfoM of AE", "yes")] = result.rows["AE"].candidate
    chosen |= {(rule, "no"): one for rule, one in result.without_labels.items()}
    rows = tuple(
        (rule, labels, f"{one.variant.decay:g}", one.step, one.mean("ica"), float(one.agreement[1]), one.defect)
        for (rule, labels), one in chosen.items()
    )
    note = (
        "All after the reconstruction filter; the last rules need no factors, so that a user without labels can apply "
        "them."
    )
    return number_table(f"What each rule chooses on {result.data}", head, rows, note)
