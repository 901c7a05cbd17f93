"""Are features that come back true, and do true features come back? Sparse autoencoders and ICA on a known dictionary.

Rows are sparse combinations of known features. Autoencoders of several widths, with TopK or L1, and ICA are trained
several times; each feature either comes back in another training or not, and either is a true one or not. The same is
trained on activations of a small language model, where the truth is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.document import Cell, Table, share
from congruence.experiments.recipes.claims import Claim, Estimate, over_trainings, read_claims
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, RecipeFigure, draw_figure, from_numbers, number_table
from congruence.features import match_features
from congruence.formatting import interval, percent
from congruence.report.figures.svg import HEAT, HELD_OUT, INK, LINEAR
from congruence.result import Finding

EDITION = 2
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"d": 16, "true": [12], "active": [2], "widths": [1.0], "runs": 3, "rows": 2000, "steps": 200}
    | {"language": {"width": 16, "depth": 2, "heads": 2, "steps": 20, "batch": 32}}
    | {"language_widths": [2.0], "language_active": [4]}
    | {"text": {"vocabulary": 300, "length": 16, "most_bytes": 200_000}},
    "small": {
        "d": 48, "true": [32, 96], "active": [3, 8], "widths": [0.5, 1.0, 2.0], "runs": 4, "rows": 20_000,
        "steps": 2500,
    }
    | {"language": {"width": 64, "depth": 4, "heads": 4, "steps": 1000, "batch": 32}}
    | {"language_widths": [1.0, 4.0], "language_active": [4, 16]}
    | {"text": {"vocabulary": 512, "length": 64, "most_bytes": 3_000_000}},
    "paper": {
        "d": 256, "true": [192, 1024], "active": [8, 32], "widths": [0.5, 1.0, 2.0, 4.0], "runs": 6, "rows": 500_000,
        "steps": 30_000,
    }
    | {"language": {"width": 256, "depth": 6, "heads": 8, "steps": 1000, "batch": 128}}
    | {"language_widths": [1, 4, 16], "language_active": [16, 64]}
    | {"text": {"vocabulary": 1024, "length": 128, "most_bytes": None}},
    "full": {
        "d": 768, "true": [512, 8192], "active": [16, 64], "widths": [0.5, 1.0, 2.0, 4.0], "runs": 10,
        "rows": 5_000_000, "steps": 200_000,
    }
    | {"language": {"width": 768, "depth": 12, "heads": 12, "steps": 50_000, "batch": 128}}
    | {"language_widths": [4, 21], "language_active": [32, 128]}
    | {"text": {"vocabulary": 4096, "length": 256, "most_bytes": None}},
}  # fmt: skip
METHODS = ("topk", "l1", "ica")
NOISE = 0.05  # standard deviation of each dimension, where a code of 1 has length 1
PENALTY = 0.1  # of the L1 autoencoder; not tuned
WORDS = {"topk": "TopK autoencoders", "l1": "L1 autoencoders", "ica": "ICA"}
INTERVALS = "Over trainings; below, the 95 % interval for other trainings (jackknife)."
CLAIMS = read_claims("dictionary-stability")
MARKS = {"topk": (HELD_OUT, "o"), "l1": (LINEAR, "s"), "ica": (HEAT, "^")}


@dataclass(frozen=True)
class Setting:
    """What was trained: a method on rows of a dictionary."""

    method: str
    true: int  # features of the true dictionary; 0 for rows of the language model, where it is not known
    active: int  # of them in a row, on average
    width: int  # features of the trained dictionary

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.method}-{self.true}-{self.active}-{self.width}"


@dataclass(frozen=True)
class Shares:
    """Shares of features; those that need the truth are None where it is not known."""

    setting: Setting
    comes_back: Estimate
    chance: float  # largest of all pairs of trainings
    unexplained: Estimate
    true: Estimate | None = None
    found: Estimate | None = None  # of the true features
    true_of_back: Estimate | None = None
    back_of_true: Estimate | None = None


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train and match."""
    settings = [*list_settings(job.parameters), *list_language_settings(job.parameters)]
    measured, runs = [], job.parameters["runs"]
    for place, setting in enumerate(settings):
        truth, rows = draw_rows(job, setting) if setting.true else (None, language_rows(job, setting))
        trained = []
        for i in range(runs):
            job.progress(f"{setting.name}, run {i + 1}", place * runs + i, len(settings) * runs)
            trained.append(job.parts.get(f"{setting.name}-run{i}", partial(train, job, setting, rows, i)))
        measured.append(measure(setting, truth, trained))
    return {"shares": measured, "language_rows": len(rows)}


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims."""
    measured = from_numbers(tuple[Shares, ...], ours["shares"])
    known, language = ([one for one in measured if (one.true is not None) is kind] for kind in (True, False))
    tables = (make_table(known), make_language_table(language))
    return Presentation(headline(known, language), judge(measured), tables, (draw_shares(known),))


def list_settings(parameters: Mapping[str, Any]) -> Iterator[Setting]:
    """Every combination of method, dictionary, sparsity and width; ICA has one width."""
    for true in parameters["true"]:
        for active in parameters["active"]:
            for method in METHODS[:2]:
                yield from (Setting(method, true, active, round(w * true)) for w in parameters["widths"])
            yield Setting("ica", true, active, min(true, parameters["d"]))


def list_language_settings(parameters: Mapping[str, Any]) -> Iterator[Setting]:
    """The same for activations of the language model; ICA has no sparsity, which is 1 for it."""
    size = parameters["language"]["width"]
    for active in parameters["language_active"]:
        for method in METHODS[:2]:
            yield from (Setting(method, 0, active, round(w * size)) for w in parameters["language_widths"])
    yield Setting("ica", 0, 1, size)


def draw_rows(job: RecipeJob, setting: Setting) -> tuple[Float, Array]:
    """The true features (true, d), of length 1, and rows (n, d) that are sparse combinations of them."""
    d, n = job.parameters["d"], job.parameters["rows"]
    rng = np.random.default_rng([job.seed, setting.true, setting.active])
    truth = rng.normal(size=(setting.true, d))
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    rows = NOISE * rng.standard_normal((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        some = slice(start, start + 10_000)
        codes = rng.exponential(size=(len(rows[some]), setting.true))
        codes *= rng.random(codes.shape) < setting.active / setting.true
        rows[some] += (codes @ truth).astype(np.float32)
    return truth, rows


def train(job: RecipeJob, setting: Setting, rows: Array, i: int) -> dict[str, Array]:
    """One training: its features, and the unexplained share of the variance."""
    seed = int(np.random.SeedSequence([job.seed, setting.true, setting.active, setting.width, i]).generate_state(1)[0])
    if setting.method == "ica":
        from congruence.ica import ICA

        ica = ICA(setting.width, starts=1, check=False, random_state=seed % 2**31).fit(rows)
        kept = ica.inverse_transform(ica.transform(rows))
        left = ((kept - rows) ** 2).sum(dtype=np.float64) / ((rows - rows.mean(0)) ** 2).sum(dtype=np.float64)
        return {"W_dec": ica.mixing_.T.astype(np.float32), "unexplained": np.asarray(left)}
    from congruence.experiments.training.sparse_autoencoders import train_sparse_autoencoder

    weights = train_sparse_autoencoder(
        rows, setting.width, setting.method, active=setting.active, penalty=PENALTY,
        steps=job.parameters["steps"], seed=seed % 2**31, device=job.device,
    )  # fmt: skip
    return {name: weights[name] for name in ("W_dec", "unexplained")}


def language_rows(job: RecipeJob, setting: Setting) -> Array:
    """Activations of the language model, (rows, width), centred.

    Their mean square length is the number of active features, as on known features, where the penalty of L1 then means
    the same.
    """
    rows = job.parts.get("language-rows", partial(language_activations, job))["rows"].astype(np.float32)
    return rows * np.float32(np.sqrt(setting.active / np.square(rows).sum(1).mean()))


def language_activations(job: RecipeJob) -> dict[str, Array]:
    """Train a language model, and take the centred outputs of its middle block at tokens of held-out files."""
    from congruence.activations.pooling import Pooling
    from congruence.experiments.data.library_text import library_text
    from congruence.experiments.models.transformers_models import NextToken
    from congruence.experiments.training.loop import optimise
    from congruence.experiments.training.settings import Training

    size, text, most = job.parameters["language"], library_text(**job.parameters["text"]), job.parameters["rows"]
    shape = {name: size[name] for name in ("width", "depth", "heads")}
    model = NextToken(vocabulary=text.vocabulary, length=text.train.shape[1], seed=job.seed, **shape)
    how = Training(
        steps=size["steps"], batch=size["batch"], optimiser="adamw", learning_rate=1e-3, weight_decay=0.05, clip=1.0,
        warmup=max(1, size["steps"] // 20), cosine=True, check_every=max(1, size["steps"] // 10), seed=job.seed,
    )  # fmt: skip
    job.progress("language model", 0, 1)
    optimise(model, [text.train], how, device=job.device)
    middle = model.layers[len(model.layers) // 2]
    windows = np.random.default_rng(job.seed).permutation(len(text.held_out))
    windows = windows[: -(-most // (text.train.shape[1] - model.skip))]  # each has a row for every token not skipped
    rows = model.embed(text.held_out[windows], (middle,), Pooling("none", model.skip))[0][:most]
    return {"rows": rows - rows.mean(0)}


def measure(setting: Setting, truth: Float | None, trained: Sequence[Mapping[str, Array]]) -> Shares:
    """Match every two trainings, and every training with the truth where it is known."""
    how: dict[str, Any] = {"aligned": True, "signs": "unsigned" if setting.method == "ica" else "signed"}
    features, runs = [one["W_dec"] for one in trained], range(len(trained))
    back: dict[tuple[int, int], Array] = {}  # whether each feature of one training comes back in another
    chances = []
    for i, j in combinations(runs, 2):
        pair = match_features(features[i], features[j], **how).pairs[0]
        back[i, j], back[j, i] = pair.comes_back, np.zeros(len(features[j]), dtype=bool)
        back[j, i][pair.partner[pair.comes_back]] = True
        chances.append(pair.chance)

    def of_pairs(above: Callable[[int, Array], float], below: Callable[[int, Array], float]) -> Estimate:
        """The sum of one number over ordered pairs of trainings, divided by that of another."""

        def statistic(kept: Sequence[int]) -> float:
            pairs = [(i, back[i, j]) for i in kept for j in kept if i != j]
            whole = sum(below(*pair) for pair in pairs)
            return float(sum(above(*pair) for pair in pairs) / whole) if whole > 0 else float("nan")

        return estimate(statistic, len(runs))

    def of_runs(values: Sequence[float]) -> Estimate:
        return estimate(lambda kept: float(np.mean([values[i] for i in kept])), len(runs))

    shares = Shares(
        setting,
        comes_back=of_pairs(lambda _, one: one.sum(), lambda _, one: len(one)),
        chance=max(chances),
        unexplained=of_runs([float(one["unexplained"]) for one in trained]),
    )
    if truth is None:
        return shares
    matched = [match_features(one, truth, **how).pairs[0] for one in features]
    true = [pair.nearest_cosine >= pair.least for pair in matched]  # copies of a true feature are true, too
    return replace(
        shares,
        true=of_runs([float(one.mean()) for one in true]),
        found=of_runs([float(pair.comes_back.sum() / setting.true) for pair in matched]),
        true_of_back=of_pairs(lambda i, one: (one & true[i]).sum(), lambda _, one: one.sum()),
        back_of_true=of_pairs(lambda i, one: (one & true[i]).sum(), lambda i, _: true[i].sum()),
    )


def estimate(statistic: Callable[[Sequence[int]], float], runs: int) -> Estimate:
    """A share of all trainings, with its interval over trainings, from 0 to 1."""
    return Estimate(*np.clip(over_trainings(statistic, runs), 0, 1).tolist())


def judge(measured: Sequence[Shares]) -> tuple[Finding, ...]:
    """Is what comes back true, and does what is true come back? What comes back of a language model?"""
    findings = []
    for method in METHODS:
        for name, what in (("is-true", "true_of_back"), ("returns", "back_of_true"), ("language", "comes_back")):
            some = [one for one in measured if one.setting.method == method]
            of_claim = [one for one in some if (one.setting.true == 0) is (name == "language")]
            claim = CLAIMS[f"{{method}}-{name}"].about(method=method, words=WORDS[method])
            findings.append(_judge(claim, of_claim, what))
    return tuple(findings)


def _judge(claim: Claim, measured: Sequence[Shares], what: str) -> Finding:
    """Judge a claim by the setting with the lowest share."""
    known = [(one.setting, value) for one in measured if np.isfinite((value := getattr(one, what)).value)]
    if not known:
        return claim.judge(float("nan"), evidence="No feature came back or was true.")
    setting, worst = min(known, key=lambda one: one[1].value)
    truth = f" for {setting.true} true ones" if setting.true else ""
    active = f", {setting.active} active" if setting.method != "ica" or setting.true else ""
    where = f"In the worst of {len(known)} settings" if len(known) > 1 else "In the one setting"
    overall = f"; over all settings {percent(float(np.mean([v.value for _, v in known])))}" if len(known) > 1 else ""
    evidence = f"{where} ({setting.width} features{truth}{active}) {percent(worst.value)}{overall}."
    return claim.judge(worst, evidence=evidence)


def headline(known: Sequence[Shares], language: Sequence[Shares]) -> tuple[str, ...]:
    """Means over all settings of autoencoders."""
    sae, on_language = ([one for one in some if one.setting.method != "ica"] for some in (known, language))
    back, true, again = (_mean_known(sae, name) for name in ("comes_back", "true_of_back", "back_of_true"))
    return (
        f"{percent(back)} of the features of sparse autoencoders come back in another training; of these, "
        f"{percent(true)} are true. Of the true ones, {percent(again)} come back.",
        f"On a language model {percent(_mean_known(on_language, 'comes_back'))} come back.",
    )


def _mean_known(measured: Sequence[Shares], name: str) -> float:
    """The mean of a share over the settings in which it is known."""
    values = np.array([getattr(one, name).value for one in measured])
    return float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else float("nan")


def make_table(measured: Sequence[Shares]) -> Table:
    """All shares where the truth is known."""
    names = ("comes_back", "true", "found", "true_of_back", "back_of_true", "unexplained")
    rows = [
        (
            *(getattr(one.setting, name) for name in ("method", "true", "active", "width")),
            *(_cell(getattr(one, name)) for name in names),
        )
        for one in measured
    ]
    head = ("method", "truth", "active", "width", "come back", "true", "found", "true if back", "back if true")
    return number_table("Features that come back and true features", (*head, "unexplained"), rows, INTERVALS)


def make_language_table(measured: Sequence[Shares]) -> Table:
    """The share that comes back on activations of the language model."""
    rows = [
        (
            one.setting.method,
            None if one.setting.method == "ica" else one.setting.active,
            one.setting.width,
            _cell(one.comes_back),
            share(one.chance),
            _cell(one.unexplained),
        )
        for one in measured
    ]
    head = ("method", "active", "width", "come back", "by chance", "unexplained")
    return number_table("Activations of a language model", head, rows, INTERVALS)


def _cell(one: Estimate) -> Cell:
    return share(one.value, below=interval(one.low, one.high) if np.isfinite(one.low) else "")


def draw_shares(measured: Sequence[Shares]) -> RecipeFigure:
    """The share of true features against the share that comes back, one mark for each setting."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], color=INK, linewidth=1, dashes=(4, 3))
        for method in METHODS:
            colour, marker = MARKS[method]
            of_method = [o for o in measured if o.setting.method == method]
            points = [(o.comes_back.value, o.true.value) for o in of_method if o.true]
            x, y = 100 * np.array(points).T
            axes.plot(x, y, marker, color=colour, markersize=8, alpha=0.85, label=method)
        axes.set(xlabel="% of features that come back", ylabel="% of features that are true")
        axes.set(xlim=(-2, 102), ylim=(-2, 102))
        axes.grid(visible=True)
        figure.legend(loc="outside upper left", ncols=3)

    return draw_figure(
        "shares",
        paint,
        (560, 460),
        "Share of true features against the share that comes back",
        "Each mark is a method on one kind of data. On the line, as many features are true as come back.",
    )
