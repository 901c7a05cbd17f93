"""Examine trained models with a mixture prior: what each satisfies of the hierarchy, and whether trainings agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import InputError
from congruence.mixture.agreement import Agreement, LatentSpace, agreement, can_hold_out
from congruence.mixture.gmm import GaussianMixture
from congruence.result import json_text
from congruence.runs import Run, open_run
from congruence.tables import unique_names

if TYPE_CHECKING:
    from congruence.mixture.hierarchy import Assumptions

ROWS = 2000  # of codes that are looked at
MOST = 64  # components of a prior whose assumptions are checked
LARGEST = 1000  # components of a prior that is written down
COLUMNS = ("source", "target", "distance", "relative", "before", "strong", "weak", "weak_held_out")  # of a pair
COUNTED = "bernoulli"  # likelihood, whose noise is not added
LOGITS = (
    "the decoder is looked at up to the logits of its pixels, whose noise is not added: the theorems do not cover it"
)


@dataclass(frozen=True, eq=False)
class Examined:
    """One training: how it was made, and what it satisfies."""

    name: str
    model: str  # "vade", ...
    components: int
    active: float | None  # latents that tell something about the data, by the log of the training
    assumptions: Assumptions | None  # None where the prior has too many components
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "name": self.name,
            "model": self.model,
            "components": self.components,
            "active_latents": self.active,
            "assumptions": None if self.assumptions is None else self.assumptions.to_dict(),
            "note": self.note,
        }


@dataclass(frozen=True, eq=False)
class MixtureExamination:
    """Several trainings: each on its own, and all against each other."""

    runs: tuple[Examined, ...]
    agreement: Agreement | None  # None for a single training
    spaces: tuple[LatentSpace, ...]
    labels: Array  # (n,), the cluster of each row that is drawn
    labels_from: str  # "the factor arm", or "the components of ..."
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What is identified by the theorems, and what trainings say of it."""
        said = {one.assumptions.verdict for one in self.runs if one.assumptions is not None}
        checked = sum(one.assumptions is not None for one in self.runs)
        text = "Assumptions were not checked."
        if len(said) == 1:
            text = said.pop()
        elif said:
            rows = [one.assumptions.row for one in self.runs if one.assumptions is not None]
            if not any(rows):
                return self._with_agreement(f"Nothing is shown to be identified in any of {checked} trainings.")
            lit = ", ".join(f"row {row}: {rows.count(row)}" for row in sorted(set(rows)))
            text = f"The theorems say different things of {checked} trainings (of Table 1, {lit}; 0 is none)."
        return self._with_agreement(text)

    def _with_agreement(self, text: str) -> str:
        return text if self.agreement is None else f"{text} {self.agreement.verdict}"

    def to_dict(self) -> dict[str, Any]:
        """The content of the JSON contract."""
        return {
            "verdict": self.verdict,
            "runs": [one.to_dict() for one in self.runs],
            "agreement": None if self.agreement is None else self.agreement.to_dict(),
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json_text(self.to_dict())

    def table(self) -> list[dict[str, Any]]:
        """A row for each ordered pair."""
        if self.agreement is None:
            return []
        rows = [pair.to_dict() for pair in self.agreement.pairs]
        return [{name: (row | row["mcc"])[name] for name in COLUMNS} for row in rows]


def examine_runs(
    runs: Sequence[Run | str | Path],
    *,
    rows: int = ROWS,
    check: bool = True,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> MixtureExamination:
    """Examine finished trainings of models with a mixture prior, from their run folders.

    Parameters
    ----------
    runs : run folders
        Of `congruence train vade` and the like, all on the same data.
    rows : int
        At most so many rows of codes are looked at, the same of every training.
    check : bool
        Whether the assumptions are checked; without it trainings are only compared.
    """
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    if not opened:
        raise InputError("at least one run folder must be given")
    tell = progress or (lambda what, done, total: None)
    _check_same_data(opened)
    names = unique_names([run.folder for run in opened])
    spaces, models = [], []
    for i, (run, name) in enumerate(zip(opened, names, strict=True)):
        tell("reading runs", i, len(opened))
        model, space = _read(run, name, rows)
        models.append(model)
        spaces.append(space)
    examined = []
    for i, (run, model, space) in enumerate(zip(opened, models, spaces, strict=True)):
        tell("checking assumptions", i, len(opened))
        examined.append(_examined(run, model, space, check=check, seed=seed))
    compared = agreement(spaces, seed=seed, progress=tell) if len(spaces) > 1 else None
    labels, labels_from = _labels(opened[0], spaces[0], rows)
    notes = [f"{one.name}: {one.note}" for one in examined if one.note]
    if compared is not None and any(pair.affine is None for pair in compared.pairs):
        notes.append("priors of many components, or without a density, were not carried onto each other")
    still = [] if compared is None else [(one.name, int((np.ptp(one.codes, axis=0) == 0).sum())) for one in spaces]
    notes += [
        f"{name}: {count} of {spaces[0].codes.shape[1]} latents are the same in all rows, and the MCC leaves them out"
        for name, count in still
        if count
    ]
    if compared is not None and not can_hold_out(spaces[0].codes):
        notes.append(f"with {len(spaces[0].codes)} rows the MCC is high by chance, and none could be held out")
    return MixtureExamination(
        tuple(examined), compared, tuple(spaces), labels, labels_from, tuple(notes), settings or {}
    )


def _check_same_data(runs: Sequence[Run]) -> None:
    for i, run in enumerate(runs):
        if run.folder.resolve() in {other.folder.resolve() for other in runs[:i]}:
            raise InputError(f"the run folder {run.folder} is given twice")
        if not run.finished:
            raise InputError(f"the training in {run.folder} is not over")
        for other in runs[:1]:
            if run.config.get("data") != other.config.get("data"):
                raise InputError(f"{run.folder} and {other.folder} were trained on different data")


def _read(run: Run, name: str, rows: int) -> tuple[Any, LatentSpace]:
    from congruence.models.stored import load_model

    model = load_model(run)
    if not hasattr(model, "mixture_prior"):
        raise InputError(f"{run.folder} holds a {getattr(model, 'name', 'model')}, which has no mixture as its prior")
    codes = np.asarray(to_numpy(run.latents().values), dtype=np.float64)
    try:
        prior = GaussianMixture.from_model(model) if _components(model) <= LARGEST else None
    except InputError as error:
        raise InputError(f"the prior of {run.folder} cannot be used: {error}") from error
    return model, LatentSpace(name, codes[_shown(len(codes), rows)], prior)


def _components(model: Any) -> int:
    """How many components the prior has; a product of facets is not multiplied out for that."""
    if hasattr(model, "facet_priors"):
        return math.prod(len(weights) for weights, _, _ in model.facet_priors())
    return len(model.mixture_prior()[0])


def _shown(n: int, rows: int) -> Array:
    """The rows that are looked at: all, or some that are spread evenly."""
    if rows < 2:
        raise InputError(f"rows must be at least 2, not {rows}")
    return np.arange(n) if n <= rows else np.linspace(0, n - 1, rows).astype(int)


def _examined(run: Run, model: Any, space: LatentSpace, *, check: bool, seed: int) -> Examined:
    lines = run.metrics()
    logged: list[float] = [line["active_latents"] for line in lines if line.get("active_latents") is not None]
    notes = [f"the training diverged, so this is its step {line['step']}" for line in lines if _diverged(line)]
    found = None
    components = _components(model)
    if check and components > MOST:
        notes.append(f"assumptions were not checked: {components} components are too many (at most {MOST})")
    elif check:
        from congruence.mixture.hierarchy import assumptions

        counted = getattr(model, "likelihood", "") == COUNTED
        chain = model.decoder.as_chain() if hasattr(model.decoder, "as_chain") else model.decoder
        noise = "unknown" if counted else float(getattr(model, "noise", 0.0))
        found = assumptions(space.prior, chain, space.codes, noise=noise, seed=seed)
        notes += [LOGITS] if counted else []
    kind = str(run.config["model"].get("model", ""))
    return Examined(space.name, kind, components, logged[-1] if logged else None, found, "; ".join(notes))


def _diverged(line: Mapping[str, Any]) -> bool:
    return line.get("ended") == "diverged"


def _labels(run: Run, space: LatentSpace, rows: int) -> tuple[Array, str]:
    """The first factor with few levels, or else the likeliest component of the first training."""
    table = run.latents()
    data = run.config.get("data", {})
    for name, kind in zip(data.get("factors", ()), data.get("kinds", ()), strict=False):
        column = table.metadata.get(name)
        if kind == "categorical" and column is not None:
            levels = np.unique(np.asarray(column), return_inverse=True)[1]
            return np.asarray(levels[_shown(len(levels), rows)]), f"the factor {name}"
    return space.states, f"the likeliest component in {space.name}"
