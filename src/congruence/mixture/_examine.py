"""`examine_mixture`: what does a mixture prior identify, and do several runs agree?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.files import InputFile
from congruence.mixture._models import MixtureModel, as_models
from congruence.mixture._options import MixtureOptions
from congruence.mixture.agreement import Agreement, LatentSpace, can_hold_out, compare_spaces
from congruence.mixture.examination import ExaminedRun, MixtureExamination
from congruence.mixture.gmm import GaussianMixture
from congruence.mixture.hierarchy import DRAWS, check_assumptions
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import recorded
from congruence.tables import as_table
from congruence.tables.inputs import pair_tables
from congruence.tables.table import as_labels

LOGITS = "the decoder is examined up to the logits of the pixels, without their noise, which the theorems do not cover"


@takes(MixtureOptions)
def examine_mixture(
    prior: Any,
    decoder: Any = None,
    codes: Any = None,
    data: Any = None,
    *,
    options: MixtureOptions,
    progress: Progress | None = None,
) -> MixtureExamination:
    """Check which theorems of Kivva et al. apply to a mixture prior and decoder, and compare several runs.

    Parameters
    ----------
    prior : GaussianMixture, fitted scikit-learn mixture, or model with `mixture_prior()`; or a mapping of these
        A trained model brings its own decoder and noise. Several runs are given as a mapping of name to model, or of
        name to `MixtureModel`, which holds prior, decoder and codes; they are examined one by one, and compared.
    decoder : torch module, optional
        From m latents to n outputs; without it the conditions on the decoder are unknown.
    codes : array, frame or table, (rows, m), optional
        Latents of the data, which are compared with the prior and at which the decoder is examined; draws from the
        prior otherwise.
    data : (rows, n), optional
        Observations, which are compared with draws of the whole model.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    rows : int
        Largest number of rows of codes that are used, the same in every run.
    labels : array of shape (rows,), or name of a metadata column of the codes, optional
        Marks rows in the figures; by default the most likely component of the prior.
    check : bool
        Whether the assumptions are checked; otherwise runs are only compared.
    tolerance : float
        Of P2: the largest correlation within a component that counts as none.
    max_components : int
        The assumptions of priors with more components are not checked.
    seed : int
        The same seed gives the same result.
    noise : float or "unknown", optional
        Standard deviation of the known Gaussian noise on the outputs; by default that of the model, or 0.

    Returns
    -------
    MixtureExamination
        A finding for every condition and theorem. A theorem holds only where all its premises do.

    References
    ----------
    Kivva et al. 2022, Theorems 3.9 and 3.10, Table 1.
    """
    if options.rows < 2:
        raise InputError(f"rows must be at least 2, not {options.rows}")
    tell = progress or (lambda what, done, total: None)
    models = as_models(prior, decoder, codes, data, options.noise)
    priors = {name: _mixture(name, model, named=isinstance(prior, Mapping)) for name, model in models.items()}
    looked = _codes(models, options)
    examined, spaces = [], []
    for i, (name, model) in enumerate(models.items()):
        tell("checking assumptions", i, len(models))
        examined.append(_examine(name, model, priors[name], looked.values.get(name), options))
        if name in looked.values:
            spaces.append(LatentSpace(name, looked.values[name], priors[name]))
    agreement = compare_spaces(spaces, seed=options.seed, progress=tell) if len(spaces) > 1 else None
    labels, labels_from = looked.labels, looked.labels_from
    if labels is None and spaces:
        labels, labels_from = spaces[0].states, f"most likely component in {spaces[0].name}"
    if not spaces and priors and next(iter(priors.values())) is not None:
        spaces, labels, labels_from = _drawn(priors, options.seed)
    return MixtureExamination(
        runs=tuple(examined),
        agreement=agreement,
        spaces=tuple(spaces),
        labels=np.zeros(0, dtype=int) if labels is None else labels,
        labels_from=labels_from,
        notes=tuple(dict.fromkeys([*looked.notes, *_run_notes(examined), *_agreement_notes(agreement)])),
        settings={
            "models": ", ".join(dict.fromkeys(run.model or run.name for run in examined)),
            "components of the prior": [run.components for run in examined],
            "rows": 0 if not looked.values else len(next(iter(looked.values.values()))),
            "assumptions checked": options.check,
            "tolerance": options.tolerance,
            "largest prior checked": options.max_components,
            "seed": options.seed,
        }
        | recorded(looked.files),
    )


@dataclass(frozen=True, eq=False)
class _Codes:
    """The codes of the runs that have some, on the same rows, and the labels of these rows."""

    values: dict[str, Float]  # (n, m) by name of the run
    labels: Array | None = None  # (n,), from 0
    labels_from: str = ""
    notes: tuple[str, ...] = ()
    files: tuple[InputFile, ...] = ()


def _mixture(name: str, model: MixtureModel, *, named: bool) -> GaussianMixture | None:
    try:
        return model.mixture()
    except InputError as error:
        if not named:
            raise
        raise InputError(f"the prior of {name} cannot be used: {error}") from error


def _codes(models: Mapping[str, MixtureModel], options: MixtureOptions) -> _Codes:
    given = {name: model.codes for name, model in models.items() if model.codes is not None}
    if len(models) > 1 and len(given) < len(models):
        without = [name for name in models if name not in given]
        raise InputError(f"several runs are compared by their codes, which {', '.join(without)} does not have")
    if not given:
        return _Codes({})
    tables = [as_table(codes, name=name) for name, codes in given.items()]
    inputs = pair_tables(tables, labels=options.labels)
    rows = _spread_rows(len(inputs.values[0]), options.rows)
    values = {
        name: np.asarray(to_numpy(x), dtype=np.float64)[rows]
        for name, x in zip(inputs.names, inputs.values, strict=True)
    }
    labels = None
    if inputs.labels is not None:
        if inputs.labels.ndim > 1:
            raise InputError(f"labels must be one column, not of shape {inputs.labels.shape}")
        labels = np.asarray(np.unique(as_labels(inputs.labels), return_inverse=True)[1])[rows]
    labels_from = options.labels if isinstance(options.labels, str) else "labels"
    return _Codes(values, labels, labels_from, tuple(inputs.notes), inputs.files)


def _spread_rows(n: int, most: int) -> Array:
    """All rows, or `most` of them that are spread evenly."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(int)


def _drawn(priors: Mapping[str, GaussianMixture | None], seed: int) -> tuple[list[LatentSpace], Array, str]:
    """Draws from a single prior without codes, marked by their component."""
    (name, mixture), *_ = priors.items()
    assert mixture is not None
    drawn = mixture.draw(DRAWS, seed=seed)
    return [LatentSpace(name, drawn.latents, mixture)], drawn.states, "component of the prior (draws from the prior)"


def _examine(
    name: str, model: MixtureModel, prior: GaussianMixture | None, codes: Float | None, options: MixtureOptions
) -> ExaminedRun:
    notes, found = list(model.notes), None
    components = model.components
    if options.check and (components > options.max_components or prior is None):
        notes.append(
            f"the assumptions were not checked, since the prior has {components} components (at most "
            f"{options.max_components} are checked)"
        )
    elif options.check:
        found = check_assumptions(
            prior,
            model.decoder,
            codes,
            model.data,
            noise=model.noise,
            tolerance=options.tolerance,
            seed=options.seed,
        )
        notes += [LOGITS] if model.logits and model.decoder is not None else []
    return ExaminedRun(name, model.kind, components, model.active_latents, found, tuple(notes))


def _run_notes(runs: list[ExaminedRun]) -> list[str]:
    own = [f"{run.name}: {note}." for run in runs for note in run.notes]
    return own + [note for run in runs if run.assumptions is not None for note in run.assumptions.notes]


def _agreement_notes(agreement: Agreement | None) -> list[str]:
    if agreement is None:
        return []
    notes = []
    if any(pair.affine is None for pair in agreement.pairs):
        notes.append("Affine maps are not fitted between priors with many components or without a density.")
    for space in agreement.spaces:
        constant = int((np.ptp(space.codes, axis=0) == 0).sum())
        if constant:
            width = space.codes.shape[1]
            notes.append(f"{space.name}: {constant} of {width} latents are constant, and the MCC leaves them out.")
    codes = agreement.spaces[0].codes
    if not can_hold_out(codes):
        notes.append(f"With {len(codes)} rows the MCC is high by chance, and too few to hold some out.")
    return notes
