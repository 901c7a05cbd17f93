"""The paper's numbers, the claims, the notes and the verdict of `model-pairs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from congruence.experiments.recipes.pair_scores import COLUMNS
from congruence.experiments.recipes.result import status_of
from congruence.formatting import number, percent
from congruence.result import Finding

KINDS = {
    "gpt": "GPT-NeoX",
    "wide": "GPT-NeoX, two widths",
    "mae": "ViT masked autoencoder",
    "resnet": "ResNet-18",
    "admet": "graph networks (ADMET)",
}
SHORT = {
    "gpt": "language models",
    "wide": "those of two widths",
    "mae": "masked autoencoders",
    "resnet": "classifiers",
    "admet": "graph networks",
}
PRINTED = {  # Table 1: permutation, rigid with scale, linear, ICA, and the efficiency of ICA
    "gpt": ("Pythia-160M-0, -1", 0.219, 0.150, 0.131, 0.202, 0.25),
    "mae": ("MAE-timm, -original", 0.197, 0.109, 0.036, 0.145, 0.59),
    "wide": ("CheXpert-small, -base", 0.218, 0.104, 0.048, 0.175, 0.38),
    "resnet": ("ResNet-18-fc-1, -2", 0.382, 0.206, 0.175, 0.312, 0.40),
}
PAPER = {name: dict(zip((*COLUMNS, "efficiency"), numbers, strict=True)) for name, *numbers in PRINTED.values()}
HALF = 0.5  # of what a linear map gains: over a permutation by a rigid map, over chance by a map from heads
TERMS = (
    ("permutation, rigid, linear", "the error left after the best map of that kind, over the diameter; 0 is a match."),
    ("rigid", "a rotation or reflection, a shift and one scale, as in the paper's table."),
    ("ICA", "each model unmixed on its own, components matched by a signed permutation; no supervised rotation."),
    ("efficiency", "gain of ICA over permutation divided by that of rigid: 1 is as good, below 0 is worse."),
    ("rigid share", "gain of rigid over permutation divided by that of linear; 1 is all of it."),
    ("null", "the same held-out error after the pairing of rows was destroyed."),
    ("outputs apart", "the mean distance of the outputs of both models, and its ratio to that of unrelated rows."),
)

Found = Mapping[str, Mapping[str, Any]]
Pairs = Mapping[str, Mapping[str, Any]]


def pairs_by_kind(found: Found) -> dict[str, Pairs]:
    """The pairs of each row of the table; those of two widths of the language model are a kind of their own."""
    kinds: dict[str, dict[str, Any]] = {}
    for family, scores in found.items():
        for names, told in scores["pairs"].items():
            source, target = (name.partition("-")[0] for name in names.split())
            if source != "wide":
                kinds.setdefault("wide" if target == "wide" else family, {})[names] = told
    return {kind: kinds[kind] for kind in KINDS if kind in kinds}


def in_sample(pairs: Pairs, column: str) -> float:
    """The mean over pairs of an in-sample number."""
    return float(np.mean([one["in_sample"][column] for one in pairs.values()]))


def held_out(pairs: Pairs, column: str) -> float:
    """The mean over pairs of a held-out error, or of the held-out efficiency."""
    if column == "efficiency":
        return float(np.mean([_defined(one["efficiency"]) for one in pairs.values()]))
    return float(np.mean([one["held_out"][column]["held_out"]["mean"] for one in pairs.values()]))


def rigid_share(permutation: float, rigid: float, linear: float) -> float:
    """The share of what a linear map gains over a permutation that a rigid one gains; NaN where that is nothing."""
    gain = permutation - linear
    return (permutation - rigid) / gain if gain > 0 else float("nan")


def answer(found: Found) -> tuple[str, ...]:
    """The share of the gain of a linear map that a rigid one reaches, for each kind of pair."""
    shares = [f"{percent(_shares(pairs))} for {SHORT[kind]}" for kind, pairs in pairs_by_kind(found).items()]
    return (
        "Of the gain of a linear map over a permutation on held-out rows, a rigid map reaches "
        f"{', '.join(shares[:-1])} and {shares[-1]}.",
    )


def findings_of(found: Found) -> tuple[Finding, ...]:
    """Judge what the paper says of its pairs, and our own questions."""
    kinds = pairs_by_kind(found)
    return (
        _order(kinds),
        _unmixed(kinds),
        _language(kinds),
        _rigid({kind: kinds[kind] for kind in ("mae", "resnet")}),
        _alike(kinds),
        _across(kinds["wide"]),
        _heads(kinds["gpt"]),
        _training(found),
    )


def _order(kinds: Mapping[str, Pairs]) -> Finding:
    everything = [one for pairs in kinds.values() for one in pairs.values()]
    falls = [_falls([one["in_sample"][column] for column in COLUMNS[2::-1]]) for one in everything]
    outside = [_falls([one["held_out"][c]["held_out"]["mean"] for c in COLUMNS[2::-1]]) for one in everything]
    return Finding(
        "larger-groups-have-smaller-errors",
        "The error up to a linear map is below that up to a rigid map, which is below that up to a permutation.",
        status_of(all(falls)),
        number=sum(falls) / len(falls),
        evidence=f"In sample in {sum(falls)} of {len(falls)} pairs, held out in {sum(outside)}.",
    )


def _unmixed(kinds: Mapping[str, Pairs]) -> Finding:
    shares = {kind: in_sample(pairs, "efficiency") for kind, pairs in kinds.items()}
    outside = {kind: held_out(pairs, "efficiency") for kind, pairs in kinds.items()}
    parts = [f"{KINDS[k]} {percent(shares[k])} in sample, {percent(outside[k])} held out" for k in kinds]
    return Finding(
        "ica-recovers-part-of-the-rotation",
        "In all cases ICA, fitted to one model at a time, recovers a share of the gain of a supervised rigid map.",
        status_of(all(share > 0 for share in shares.values())),
        number=min(shares.values()),
        null=0.0,
        evidence="; ".join(parts) + ".",
    )


def _language(kinds: Mapping[str, Pairs]) -> Finding:
    clear = []
    for one in (*kinds["gpt"].values(), *kinds["wide"].values()):
        linear, rigid = (one["held_out"][column]["held_out"] for column in ("linear", "similarity"))
        clear.append(linear["high"] < rigid["low"])
    ours, printed = _shares(kinds["gpt"]), rigid_share(*PRINTED["gpt"][1:4])
    return Finding(
        "language-models-align-linearly",
        "Language models align up to a linear map, and clearly less up to a rigid map.",
        status_of(all(clear)),
        number=ours,
        evidence=f"Held out, linear {_two(kinds['gpt'], 'linear')} against rigid {_two(kinds['gpt'], 'similarity')}; "
        f"the 95 % intervals do not overlap in {sum(clear)} of {len(clear)} pairs. A rigid map reaches {percent(ours)} "
        f"of the gain of a linear map over a permutation, {percent(printed)} in the paper.",
    )


def _rigid(kinds: Mapping[str, Pairs]) -> Finding:
    shares = {kind: _shares(pairs) for kind, pairs in kinds.items()}
    parts = [
        f"{KINDS[kind]} {percent(share)}, {percent(rigid_share(*PRINTED[kind][1:4]))} in the paper"
        for kind, share in shares.items()
    ]
    return Finding(
        "image-models-align-rigidly",
        "Masked autoencoders and classifiers align up to a rigid map.",
        status_of(all(share >= HALF for share in shares.values())),
        number=min(shares.values()),
        evidence=f"Share of the gain of a linear map over a permutation that a rigid map reaches, held out: "
        f"{'; '.join(parts)}. At least {percent(HALF)} counts as rigid.",
    )


def _alike(kinds: Mapping[str, Pairs]) -> Finding:
    rigid, linear = held_out(kinds["mae"], "similarity"), held_out(kinds["gpt"], "linear")
    return Finding(
        "rigid-autoencoders-match-linear-language-models",
        "Masked autoencoders agree at least as well up to a rigid map as language models up to a linear map.",
        status_of(rigid <= linear),
        number=rigid - linear,
        evidence=f"Held out {number(rigid)} against {number(linear)}; in the paper {PRINTED['mae'][2]:g} against "
        f"{PRINTED['gpt'][3]:g}. Data and sizes differ, in the paper and here.",
    )


def _across(pairs: Pairs) -> Finding:
    beaten = [
        one["held_out"][column]["held_out"]["high"] < one["held_out"][column]["null"]
        for one in pairs.values()
        for column in ("similarity", "linear")
    ]
    return Finding(
        "different-widths-align",
        "Models of different widths align, too.",
        status_of(all(beaten)),
        number=held_out(pairs, "similarity"),
        null=_mean_null(pairs, "similarity"),
        evidence=f"Rigid {_two(pairs, 'similarity')} and linear {_two(pairs, 'linear')}, nulls "
        f"{number(_mean_null(pairs, 'similarity'))} and {number(_mean_null(pairs, 'linear'))}.",
    )


def _heads(pairs: Pairs) -> Finding:
    """Whether the map from heads is closer to the fitted one than to chance; twice an error can be chance already."""
    heads_of = [one["heads"] for one in pairs.values()]
    heads, fitted = float(np.mean([one["heads"] for one in heads_of])), held_out(pairs, "linear")
    null = float(np.mean([_defined(one["held_out"]["linear"]["null"]) for one in pairs.values()]))
    share = (null - heads) / (null - fitted) if null > fitted else float("nan")
    unique = all(one["unique"] for one in heads_of)
    return Finding(
        "heads-imply-the-map",
        "The linear map between language models follows from their heads (Roeder et al. 2021).",
        status_of(share >= HALF if unique and np.isfinite(share) else None),
        number=share,
        null=0.0,
        evidence=f"The map from the heads leaves {number(heads)}, the fitted one {number(fitted)} on other rows, "
        f"chance {number(null)}: it reaches {percent(share)} of the gain of the fitted map over chance, and "
        f"{percent(HALF)} is required. The heads {'determine' if unique else 'do not determine'} all directions; no "
        f"linear map explains {percent(float(np.mean([one['disagreement'] for one in heads_of])))} of the source's "
        "head.",
    )


def _training(found: Found) -> Finding:
    """Ours: whether pairs become more similar during training."""
    parts, ratios, better = [], [], []
    for family, scores in found.items():
        steps = scores.get("steps", ())
        if not steps:
            continue
        first, *_, last = [one["similarity"] / one["null"] for one in steps]
        ratios.append(last / first)
        better.append(last < first)
        raw = [number(steps[k]["similarity"]) for k in (0, -1)]
        parts.append(f"{KINDS[family]} from {percent(first)} to {percent(last)} ({raw[0]} to {raw[1]} of the diameter)")
    return Finding(
        "training-reduces-the-error",
        "Pairs become more similar up to a rigid map during training (our question).",
        status_of(all(better)),
        number=max(ratios, default=None),
        evidence=f"Held-out error as a share of its null, from before the first step to the last: {'; '.join(parts)}.",
    )


def notes_of(parameters: Mapping[str, Any], about: Mapping[str, str], found: Found) -> tuple[str, ...]:
    """Where the experiment differs from the paper's."""
    widths = ", ".join(f"{name} {width}" for name, width in found["gpt"]["widths"].items())
    notes = [
        "The paper compares published pretrained models; ours are small and trained here, each seed on the same "
        f"data. Language models on the source of Python's standard library ({about['gpt']}); masked autoencoders on "
        f"{about['mae']}; classifiers on {about['resnet']}, with {parameters['resnet']['width']} channels in the first "
        "stage instead of the 64 of a ResNet-18. Another version of Python has another standard library.",
        "The paper prints in-sample errors: maps are fitted and scored on the same rows, which the models were trained "
        "on. Held-out errors are for rows that neither map nor model has seen; for text, whole files.",
        "A row is one token of each window, taken after the final norm (language models), the mean over all patches, "
        "none hidden (masked autoencoders), or the pooled features (classifiers).",
        "The paper's own numbers do not show that language models are special: a rigid map reaches 78 % of the gain of "
        "a linear map for Pythia, and 55 % for MAE.",
        f"Across widths ({widths}) the narrower is zero-padded.",
        "Maps between layers are differentiated by one token or patch, with the others fixed; for a ResNet by all "
        "pixels. The final norm of a transformer removes the mean and almost removes the length, so that no map "
        "through it has the finite bi-Lipschitz constant that Theorem 1 requires; the decoder of a masked autoencoder "
        "is narrower than its encoder, here as in published ones, so that it loses directions, too. It receives all "
        "patches, as the representations do, while training shows it a quarter.",
    ]
    if "admet" not in found:
        notes.append("The graph networks of the data set modelpairs were not found, and are left out.")
    for family, scores in found.items():
        notes += [f"{KINDS[family]}: {text}" for text in scores["advice"]]
    return tuple(notes)


def _falls(errors: Sequence[float]) -> bool:
    """Whether linear, rigid and permutation come in this order, from the smallest."""
    return errors[0] < errors[1] < errors[2]


def _shares(pairs: Pairs) -> float:
    return rigid_share(*(held_out(pairs, column) for column in COLUMNS[:3]))


def _two(pairs: Pairs, column: str) -> str:
    return number(held_out(pairs, column))


def _mean_null(pairs: Pairs, column: str) -> float:
    return float(np.mean([one["held_out"][column]["null"] for one in pairs.values()]))


def _defined(value: float | None) -> float:
    return float("nan") if value is None else value
