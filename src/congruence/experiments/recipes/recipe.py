"""What a recipe is, and the list of all recipes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from congruence.errors import InputError
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.experiments.recipes.claims import Claim
    from congruence.experiments.recipes.result import Presentation, RecipeFigure
    from congruence.parts import Parts

SCALES = {
    "smoke": "seconds, a check that it runs",
    "small": "minutes on two cores",
    "paper": "minutes on one large GPU",
    "full": "the published budget, or our best estimate of it; not run by us",
}


@dataclass(frozen=True)
class RecipeJob:
    """What a recipe receives: its size, seed and device, and the parts that were computed before."""

    seed: int
    device: str  # "cpu", "cuda" or "cuda:1"
    parameters: Mapping[str, Any]  # those of the scale
    parts: Parts
    progress: Progress
    drawn: list[RecipeFigure] = field(default_factory=list)  # figures of what is too large to keep as numbers


class Method(Protocol):
    """The module of a recipe: the parameters of each scale, an edition, its claims, and two functions.

    `compute` trains and measures; `present` makes sentences, findings, tables and figures of nothing but the numbers
    that `compute` returned and the settings, so that they can be made again without training.

    `EDITION` grows whenever the same settings would give other numbers, so that old parts are not reused. A recipe
    that works with several data sets lists them in `DATA`, and the one of a scale is its parameter "data"; if it takes
    several at once ("rooms,sprites"), it has `SEVERAL = True`. An optional function `plan(parameters, device, parts)`
    returns a sentence about what will be computed and how long that takes.
    """

    EDITION: int
    PARAMETERS: Mapping[str, Mapping[str, Any]]  # by scale; all that JSON can hold
    CLAIMS: tuple[Claim, ...]

    def compute(self, job: RecipeJob) -> Mapping[str, Any]:
        """Return all numbers of the experiment, as plain data or what `as_numbers` turns into it."""

    def present(self, ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
        """Judge the claims, and make the tables and figures."""


@dataclass(frozen=True)
class Recipe:
    """One table, figure or example of a paper that can be reproduced."""

    name: str
    question: str
    sentence: str  # what it does, for the list
    source: str  # what it reproduces
    module: str

    def method(self) -> Method:
        """Load the code of the recipe; only now are heavy packages imported."""
        return cast(Method, import_module(self.module))


RECIPES = (
    Recipe(
        name="statistical-versus-structural",
        question="Is a representation that every training reproduces also the true one?",
        sentence="A misspecified regression and a masked autoencoder: stable across trainings, and not the truth.",
        source="Nelson et al. 2026, appendix A.1, examples 1 and 2",
        module="congruence.experiments.recipes.statistical_versus_structural.run",
    ),
    Recipe(
        name="sprite-isometry",
        question="Is the map from the position and size of a square to its image an isometry?",
        sentence="The metric of images of a square: an isometry in its position, conformal in position and size.",
        source="Nelson et al. 2026, section 3.3.1 and appendix A.6",
        module="congruence.experiments.recipes.sprite_isometry",
    ),
    Recipe(
        name="mnist-bilipschitz",
        question="Do two trainings agree better if their decoders are closer to isometries?",
        sentence="Pairs of orthogonal autoencoders on digits: the closer to an isometry, the smaller the rigid error.",
        source="Nelson et al. 2026, section 4.1 and appendix A.7.1",
        module="congruence.experiments.recipes.mnist_bilipschitz.run",
    ),
    Recipe(
        name="isometry-regularisers",
        question="Which regularisers make a decoder nearly isometric and two trainings agree?",
        sentence="Autoencoders with weight decay, spectral norm, residual layers or a penalty: isometry, agreement.",
        source="Nelson et al. 2026, appendix A.4 (named there; the experiment is ours)",
        module="congruence.experiments.recipes.isometry_regularisers",
    ),
    Recipe(
        name="deconfounding",
        question="Do whitening and ICA help on unseen plates, and only near an isometry?",
        sentence="A simulated screen of six genes: trees on held-out plates, and ICA's gain away from an isometry.",
        source="Nelson et al. 2026, section 4.4 and appendix A.7.4, Tables 3, 4 and 7 (on simulated data)",
        module="congruence.experiments.recipes.deconfounding.run",
    ),
    Recipe(
        name="disentanglement",
        question="Does ICA on a plain autoencoder find the true factors as well as specialised models?",
        sentence="Table 2: an autoencoder with weight decay and ICA against VAEs, BioAE, VQ-VAE and QLAE, by InfoMEC.",
        source="Nelson et al. 2026, section 4.3, table 2 and appendix A.7.3",
        module="congruence.experiments.recipes.disentanglement.run",
    ),
    Recipe(
        name="metric-validity",
        question="Where do metrics of disentanglement misjudge codes that are, or are not, the factors?",
        sentence="A grid of generators and encoders whose truth is known: every metric, and where it errs.",
        source="after Joshi et al. 2026 (conditions of validity); the grid is ours",
        module="congruence.experiments.recipes.metric_validity",
    ),
    Recipe(
        name="dictionary-stability",
        question="Are the features that come back in another training true, and do true features come back?",
        sentence="TopK and L1 autoencoders and ICA on a known sparse dictionary: what comes back, and what is true.",
        source="the question of Nelson et al. 2026, appendix A.1, for sparse dictionaries; the experiment is ours",
        module="congruence.experiments.recipes.dictionary_stability",
    ),
    Recipe(
        name="model-pairs",
        question="Do two trainings of a language model, an autoencoder or a classifier find the same representation?",
        sentence="Table 1: pairs of GPT-NeoX, masked autoencoders, ResNets and graph networks, by group of maps.",
        source="Nelson et al. 2026, section 4.2, table 1 and appendix A.7.2",
        module="congruence.experiments.recipes.model_pairs.run",
    ),
    Recipe(
        name="mechanistic-overlap",
        question="Does the compositional contrast identify slots whose supports overlap?",
        sentence="Slots with increasingly overlapping supports: SIS of autoencoders trained with the contrast.",
        source="Matthes et al. 2026, the experiment on overlapping supports",
        module="congruence.experiments.recipes.mechanistic_overlap.run",
    ),
    Recipe(
        name="mixture-likelihood",
        question="Does the likelihood of a ReLU mixture have the truth as its only minimiser?",
        sentence="Exact likelihoods of 50 random ReLU mixtures, along and across parameters; a |x| counterexample.",
        source="Kivva et al. 2022, section 4 (maximum likelihood), figure 1 and remark 3.12",
        module="congruence.experiments.recipes.mixture_likelihood.run",
    ),
    Recipe(
        name="mixture-pinwheel",
        question="Do trainings with a mixture prior find the same latent space, up to an affine map?",
        sentence="Five VaDEs on a pinwheel: affine distances of their priors, and MCC of their codes, over 20 pairs.",
        source="Kivva et al. 2022, section 4 (simulated data) and figure 2",
        module="congruence.experiments.recipes.mixture_pinwheel",
    ),
    Recipe(
        name="mixture-mnist",
        question="Do trainings with mixture priors find the same codes of handwritten digits?",
        sentence="Multi-facet clustering VAEs on MNIST, with ReLU and with LeakyReLU: MCC of the codes of trainings.",
        source="Kivva et al. 2022, section 4 (real data)",
        module="congruence.experiments.recipes.mixture_mnist",
    ),
)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name; an unknown name is refused with similar names."""
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if name in by_name:
        return by_name[name]
    near = [n for n in by_name if name and name in n] or difflib.get_close_matches(name, by_name, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_name)}"
    raise InputError(f"there is no recipe {name!r}; {hint}")
