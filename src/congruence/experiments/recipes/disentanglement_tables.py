"""The tables of `disentanglement`: our scores, the paper's, the grid of weight decays, and the choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from congruence.document import Cell, Table, share
from congruence.experiments.recipes.disentanglement_choice import Row, over_data, reconstructing
from congruence.experiments.recipes.disentanglement_claims import PUBLISHED, PUBLISHED_ON, Experiment
from congruence.experiments.recipes.disentanglement_scores import BESIDE, SCORES, WAYS
from congruence.experiments.recipes.result import Value, number_table
from congruence.formatting import number

HEADS = {"infom": "InfoM", "infoe": "InfoE", "infoc": "InfoC", "mig": "MIG", "dci_disentanglement": "DCI, D"}
HEADS |= {"dci_completeness": "DCI, C", "dci_informativeness": "DCI, I"}
ORDER = ("AE", "β-VAE", "β-TCVAE", "BioAE", "AE + ICA", "AE + ICA, not centred", "AE + ICA, whitened")
QUANTISED = ("VQ-VAE", "VQ-VAE with weight decay", "QLAE")


def tables_of(found: Sequence[Experiment]) -> tuple[Table, ...]:
    """All tables."""
    ours = [table for one in found for table in (_scores(one), _grid(one), _choices(one))]
    together = [_aggregated(found)] if len(found) > 1 else []
    return (*together, *ours, _published())


def _scores(found: Experiment) -> Table:
    """The appendix's form: models whose codes are numbers, then models whose codes are classes."""
    head = ("model", "chosen", *(HEADS[name] for name in (*SCORES, *BESIDE)), "PSNR", "seeds")
    rows: list[tuple[Value, ...]] = [_row(found.rows[name]) for name in ORDER]
    rows.append(("discrete latent models", *[None] * (len(head) - 1)))
    rows += [_row(found.rows[name]) for name in QUANTISED]
    note = (
        f"Ours, on {found.data} ({found.note}). Means over seeds with their 95 % interval; of models with one seed the "
        "90 % interval over rows. DCI by random forests."
    )
    return number_table(f"Scores on {found.data}", head, tuple(rows), note)


def _row(row: Row) -> tuple[Value, ...]:
    one = row.candidate
    chosen = f"weight decay {one.setting.decay:g}, step {one.step}"
    return (row.name, chosen, *(_interval(row, name) for name in (*SCORES, *BESIDE)), one.psnr, one.setting.seeds)


def _interval(row: Row, score: str) -> Cell:
    return _written(*row.interval(score))


def _written(mean: float, low: float, high: float) -> Cell:
    ends = "" if math.isnan(low) else f" ({number(low, 2)} to {number(high, 2)})"
    return Cell(number(mean, 2) + ends, "" if math.isnan(mean) else mean)


def _aggregated(found: Sequence[Experiment]) -> Table:
    """Means over data sets; intervals come from how seeds differ on each."""
    rows: list[tuple[Value, ...]] = []
    for name in (*ORDER, *QUANTISED):
        cells: list[Value] = [name, ", ".join(one.data for one in found)]
        cells += [_written(*over_data([one.rows[name].values(score) for one in found])) for score in SCORES]
        rows.append(tuple(cells))
    head = ("model", "data", *(HEADS[name] for name in SCORES))
    note = (
        "Means over data sets with their 95 % interval, were other seeds taken on the same data; models with one seed "
        "have none. Each data set has its own choices."
    )
    return number_table("Aggregated over data sets", head, tuple(rows), note)


def _published() -> Table:
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


def _grid(found: Experiment) -> Table:
    """The argument in numbers: each weight decay at the last step."""
    head: tuple[str, ...] = ("weight decay", "step", "PSNR", "active latents", "isometry defect", "InfoM, AE")
    head += ("InfoM, AE + ICA", "InfoM, not centred", "InfoM, whitened", "InfoM, readouts")
    head += ("agreement of seeds, AE", "AE + ICA", "not centred", "whitened")
    head += ("nearness, AE", "nearness, AE + ICA", "up to a rotation", "null")
    kept = set(map(id, reconstructing(found.grid)))
    rows: list[tuple[Value, ...]] = []
    for one in found.last:
        cells: list[Value] = [f"{one.setting.decay:g}", f"{one.step}" + ("" if id(one) in kept else ", blurred")]
        cells += [one.psnr, one.active, one.defect, *(one.mean(way) for way in WAYS), float(one.readouts.mean())]
        cells += [float(value) for value in one.agreement]
        rows.append((*cells, *(share(float(value)) for value in one.nearness)))
    note = (
        "The autoencoder at its last step, means over seeds. Readouts: supervised least squares on all factors, also "
        "those hardly encoded; an indication of what a linear map can reach, not a bound. Nearness of codes of two "
        "seeds up to a signed permutation (held out, % of the diameter), before and after ICA, and up to the best "
        "rotation. Blurred: dropped by the reconstruction filter."
    )
    return number_table(f"Weight decay, isometry and factors on {found.data}", head, tuple(rows), note)


def _choices(found: Experiment) -> Table:
    head = ("rule", "labels", "weight decay", "step", "InfoM of AE + ICA", "agreement of seeds", "isometry defect")
    chosen = {("highest InfoM of AE + ICA", "yes"): found.rows["AE + ICA"].candidate}
    chosen[("highest InfoM of AE", "yes")] = found.rows["AE"].candidate
    chosen |= {(rule, "no"): one for rule, one in found.without_labels.items()}
    rows = tuple(
        (rule, labels, f"{one.setting.decay:g}", one.step, one.mean("ica"), float(one.agreement[1]), one.defect)
        for (rule, labels), one in chosen.items()
    )
    note = (
        "All after the reconstruction filter; the last rules need no factors, so that a user without labels can apply "
        "them."
    )
    return number_table(f"What each rule chooses on {found.data}", head, rows, note)
