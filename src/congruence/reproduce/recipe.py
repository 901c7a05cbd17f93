"""What a recipe is, what comes out of one, and the list of all of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from congruence.errors import InputError
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.reproduce.parts import Parts

SCALES = {
    "smoke": "seconds: does it run?",
    "small": "minutes on two cores",
    "paper": "minutes on one large GPU",
    "full": "the published budget, or as near to it as we know; documented, not run by us",
}
Cell = str | float | int | None  # of a table; None where there is nothing to say


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, whether our numbers bear it out (None: they cannot tell), and which numbers."""

    statement: str
    holds: bool | None
    evidence: str

    @property
    def status(self) -> str:
        """Whether the claim "holds" or "fails", or whether that is "unknown"."""
        return "unknown" if self.holds is None else "holds" if self.holds else "fails"

    def to_dict(self) -> dict[str, Any]:
        """The claim as in result.json."""
        return {"statement": self.statement, "holds": self.holds, "evidence": self.evidence}


@dataclass(frozen=True)
class NumberTable:
    """The paper's numbers beside ours: one row for each thing measured."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure as an inline SVG element; `name` is that of its file, without the ending."""

    name: str
    caption: str
    svg: str = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What a recipe found. `paper` and `ours` hold numbers and words that JSON can hold."""

    answer: str  # one sentence, made from the numbers
    paper: Mapping[str, Any]
    ours: Mapping[str, Any]
    claims: tuple[Claim, ...]
    tables: tuple[NumberTable, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()  # what is ours and not the paper's, what was left out
    terms: tuple[tuple[str, str], ...] = ()  # words of the tables and figures, with what they mean


@dataclass(frozen=True)
class Job:
    """What a recipe is given: how large, from which seed, where, and what was computed before."""

    scale: str
    seed: int
    device: str  # "cpu", "cuda" or "cuda:1"
    parameters: Mapping[str, Any]  # those of the scale
    parts: Parts
    progress: Progress


class Method(Protocol):
    """The module of a recipe: the parameters of each scale, an edition, and the function that does it.

    `EDITION` grows whenever the same settings would give other numbers, so that old parts are not taken for new ones.
    A recipe that can do with several data sets names them in `DATA`, and the one of a scale in its parameter "data";
    where it takes several at once ("rooms,sprites"), it has `SEVERAL = True`. Where it has a function
    `plan(parameters, device, parts)`, that says in a sentence what is to be done and about how long it takes.
    """

    EDITION: int
    PARAMETERS: Mapping[str, Mapping[str, Any]]  # by scale; all that JSON can hold

    def run(self, job: Job) -> Outcome:
        """Do what the recipe says."""


@dataclass(frozen=True)
class Recipe:
    """One table, figure or example of a paper that can be made again."""

    name: str
    question: str
    sentence: str  # what it does, for the list
    source: str  # what it reproduces
    module: str

    def method(self) -> Method:
        """Load the code of the recipe; only now are heavy packages imported."""
        return cast(Method, import_module(self.module))


@dataclass(frozen=True)
class Reproduction:
    """What came of a recipe with given settings: all that its files tell."""

    recipe: Recipe
    outcome: Outcome
    settings: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The content of result.json; the same settings give the same content."""
        return {
            "recipe": self.recipe.name,
            "source": self.recipe.source,
            "question": self.recipe.question,
            "answer": self.outcome.answer,
            "paper": dict(self.outcome.paper),
            "ours": dict(self.outcome.ours),
            "claims": [claim.to_dict() for claim in self.outcome.claims],
            "notes": list(self.outcome.notes),
            "figures": [f"{figure.name}.svg" for figure in self.outcome.figures],
            "settings": dict(self.settings),
        }


RECIPES = (
    Recipe(
        name="statistical-versus-structural",
        question="Is a representation that comes back every time also the true one?",
        sentence="A misspecified regression and a masked autoencoder that come back every time, and are not the truth.",
        source="Nelson et al. 2026, appendix A.1, examples 1 and 2",
        module="congruence.reproduce.statistical_versus_structural",
    ),
    Recipe(
        name="sprite-isometry",
        question="Are pictures of a square that moves and grows an isometry of where and how large it is?",
        sentence="The metric of pictures of a square: moving it is an isometry, growing it too is conformal.",
        source="Nelson et al. 2026, section 3.3.1 and appendix A.6",
        module="congruence.reproduce.sprite_isometry",
    ),
    Recipe(
        name="mnist-bilipschitz",
        question="Does a decoder that is nearer to an isometry make two trainings agree better?",
        sentence="Pairs of orthogonal autoencoders on digits: the nearer to an isometry, the nearer up to a rotation.",
        source="Nelson et al. 2026, section 4.1 and appendix A.7.1",
        module="congruence.reproduce.mnist_bilipschitz",
    ),
    Recipe(
        name="isometry-regularisers",
        question="Which regularisers bring a decoder near an isometry, and two trainings near each other?",
        sentence="Autoencoders with weight decay, spectral norm, residual layers or a penalty: isometry, agreement.",
        source="Nelson et al. 2026, appendix A.4 (named there; the experiment is ours)",
        module="congruence.reproduce.isometry_regularisers",
    ),
    Recipe(
        name="deconfounding",
        question="Do whitening and ICA help on plates never seen, and only near an isometry?",
        sentence="A simulated screen of six genes: trees on held-out plates, and ICA's gain away from an isometry.",
        source="Nelson et al. 2026, section 4.4 and appendix A.7.4, Tables 3, 4 and 7 (on simulated data)",
        module="congruence.reproduce.deconfounding",
    ),
    Recipe(
        name="disentanglement",
        question="Does ICA on a plain autoencoder find the true factors as well as models made for it?",
        sentence="Table 2: an autoencoder with weight decay and ICA against VAEs, BioAE, VQ-VAE and QLAE, by InfoMEC.",
        source="Nelson et al. 2026, section 4.3, table 2 and appendix A.7.3",
        module="congruence.reproduce.disentanglement",
    ),
    Recipe(
        name="model-pairs",
        question="Do two trainings of a language model, an autoencoder or a classifier find the same representation?",
        sentence="Table 1: pairs of GPT-NeoX, masked autoencoders, ResNets and graph networks up to ever larger maps.",
        source="Nelson et al. 2026, section 4.2, table 1 and appendix A.7.2",
        module="congruence.reproduce.model_pairs",
    ),
    Recipe(
        name="mechanistic-overlap",
        question="Does the compositional contrast find slots that act on rows they share?",
        sentence="Slots that write to rows that overlap more and more: SIS of autoencoders trained with the contrast.",
        source="Matthes et al. 2026, the experiment on overlapping supports",
        module="congruence.reproduce.mechanistic_overlap",
    ),
    Recipe(
        name="mixture-likelihood",
        question="Is the truth the only model that a mixture seen through a ReLU layer can be?",
        sentence="Exact likelihoods of 50 random ReLU mixtures, along and across parameters; two priors |x| joins.",
        source="Kivva et al. 2022, section 4 (maximum likelihood), figure 1 and remark 3.12",
        module="congruence.reproduce.mixture_likelihood",
    ),
    Recipe(
        name="mixture-pinwheel",
        question="Do trainings with a mixture prior find the same latent space, up to an affine map?",
        sentence="Five VaDEs on a pinwheel: affine distances of their priors, and MCC of their codes, over 20 pairs.",
        source="Kivva et al. 2022, section 4 (simulated data) and figure 2",
        module="congruence.reproduce.mixture_pinwheel",
    ),
    Recipe(
        name="mixture-mnist",
        question="Does a model with mixture priors find the same codes of handwritten digits every time?",
        sentence="Multi-facet clustering VAEs on MNIST, with ReLU and with LeakyReLU: MCC of the codes of trainings.",
        source="Kivva et al. 2022, section 4 (real data)",
        module="congruence.reproduce.mixture_mnist",
    ),
)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name; a name that is not there is refused with those that are near."""
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if name in by_name:
        return by_name[name]
    near = [n for n in by_name if name and name in n] or difflib.get_close_matches(name, by_name, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_name)}"
    raise InputError(f"there is no recipe {name!r}; {hint}")
