"""Which components are called identified: only those that return on other rows."""

from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence import ICA
from congruence.ica import load_ica, resolve
from congruence.ica._halves import BLOCKS, blocks_of, halves_of, pair_errors, units
from congruence.ica._options import ResolveOptions
from congruence.ica._point import point_at
from congruence.ica._unmixing import prepare_rows
from congruence.ica.components import components_of, independent_components

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CELLS = [  # name, rows, dimensions, samples
    ("Gaussian", 2000, 10, 4),
    ("spherical t5", 2000, 10, 4),
    ("Gaussian scale mixture", 2000, 10, 4),
    ("Gaussian, rows 5x", 2000, 10, 4),
    ("Gaussian, AR 0.98", 2000, 10, 4),
    ("Gaussian, 40 clusters, given", 2000, 10, 4),
    ("Gaussian, AR 0.98, two components", 2000, 2, 4),
    ("spherical t3", 500, 2, 40),
    ("spherical t3", 500, 3, 40),
    ("spherical, lognormal scales", 500, 2, 20),
    ("Gaussian, 2 % of rows times 8", 500, 2, 20),
    ("spherical planes, t3", 2000, 4, 20),
    ("10 non-Gaussian and 10 Gaussian sources", 5000, 20, 4),
    ("mixture", 2000, 6, 4),
    ("mixture, rows auto", 20_000, 4, 4),
    ("breast cancer", 569, 10, 1),
]


def prepared(x):
    return prepare_rows(x, n_components=None, contrast="logcosh", whiten=True, device="cpu")


def mixed(rng, n=4000, laplace=3, gaussian=2):
    sources = np.column_stack([rng.laplace(size=(n, laplace)), rng.normal(size=(n, gaussian))])
    return sources @ rng.normal(size=(laplace + gaussian,) * 2)


@pytest.fixture(scope="module")
def cells():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        from calibration_resolve import resolve as make
    return {(cell.name, cell.n, cell.d): cell for cell in make()}


@pytest.mark.parametrize(("name", "n", "d", "samples"), CELLS)
def test_rates_of_identified_components_are_within_their_limits(cells, name, n, d, samples):
    """On a few samples with fixed seeds; `benchmarks/calibration.py` has all of them."""
    cell = cells[name, n, d]
    columns = zip(*(cell.simulate(seed) for seed in range(samples)), strict=True)
    for quantity, values in zip(cell.quantities, columns, strict=True):
        assert quantity.is_met(float(np.mean(values))), f"{quantity.name}: {values}"


def test_the_bare_fit_calls_axes_of_a_sphere_identified_and_the_check_does_not(rng):
    x = rng.normal(size=(2000, 5)) / np.sqrt(rng.chisquare(5, size=(2000, 1)))
    bare, checked = (ICA(check=check, random_state=0).fit(x) for check in (False, True))
    assert bare.identified_.any()
    assert bare.returned_ is None
    assert not checked.identified_.any()
    assert (checked.returned_ < 0.9).any()
    assert_array_equal(bare.components_, checked.components_)
    assert (checked.sampling_error_ > 2 * bare.sampling_error_).all()


def test_python_and_the_command_have_the_same_defaults():
    ours, theirs = ICA().get_params(), ResolveOptions()
    for name in ("contrast", "whiten", "starts", "check", "rows", "tol", "max_iter", "device"):
        assert ours[name] == getattr(theirs, name)


def test_errors_by_blocks_are_those_of_independent_components_on_a_mixture(rng):
    x = rng.laplace(size=(20_000, 6)) @ rng.normal(size=(6, 6))
    sample, found = prepared(x).subset(None), independent_components(x, check=False).unmixing
    robust, without_axes = pair_errors(sample, found.unmixing, blocks_of(None, len(x)))
    rotation = found.unmixing @ sample.whitening.inverse
    assert_allclose(robust.mean(), point_at(rotation, sample.source).pair_errors.mean(), rtol=0.25)
    assert (robust <= without_axes).all()
    assert without_axes.mean() < 1.3 * robust.mean()


def test_a_far_row_that_made_the_axes_counts_in_the_errors_for_rows_without_axes(rng):
    """At the maximum that it draws to itself its score is 0, so that the sandwich estimate alone does not see it."""
    x = rng.normal(size=(500, 2))
    x[7] = [40.0, 30.0]
    found = independent_components(x, check=False).unmixing
    errors = pair_errors(prepared(x).subset(None), found.unmixing, blocks_of(None, 500))
    error, without_axes = (one.max() for one in errors)
    assert without_axes > 2 * error
    assert without_axes > 0.12


@pytest.mark.parametrize("contrast", ["logcosh", "exp", "cube"])
def test_scores_have_the_curvature_of_their_contrast(contrast, rng):
    """The derivative of the average score in a plane, by a small rotation."""
    x = rng.laplace(size=(3000, 3))
    ready = prepare_rows(x, n_components=None, contrast=contrast, whiten=True, device="cpu")
    source, turn = ready.subset(None).source, 1e-5
    at = source.scores(np.eye(3))
    step = np.eye(3)
    step[0, 1], step[1, 0] = turn, -turn
    slope = (source.averages(step).cross - source.averages(step.T).cross)[0, 1] / (2 * turn)
    assert_allclose(slope, at.curvature[0, 1] - at.cross[0, 0], rtol=1e-4)
    assert_allclose(at.second, np.eye(3), atol=1e-8)


def test_copies_and_clusters_stay_in_one_half(rng):
    x = rng.normal(size=(200, 3))
    copy = rng.permutation(np.arange(1000) % 200)
    unit = units(prepared(x[copy]))
    for row in range(200):
        assert len(set(unit[copy == row])) == 1
    assert len(set(unit)) == 200
    one, other = halves_of(blocks_of(unit, 1000), 1000)
    assert len(one) + len(other) == 1000
    assert not set(copy[one]) & set(copy[other])
    label = rng.integers(30, size=1000)
    one, other = halves_of(blocks_of(units(prepared(x[copy]), label), 1000), 1000)
    assert not set(label[one]) & set(label[other])
    assert 300 < len(one) < 700


@pytest.mark.parametrize("d", [2, 3, 6, 10])
def test_repeated_values_of_discrete_sources_are_no_copies(d, rng):
    mixing = rng.normal(size=(d, d))
    assert units(prepared(rng.normal(size=(500, d)))) is None
    for levels in [levels for levels in (2, 3, 6) if levels**d < 1100]:  # of more values, few repeat
        assert units(prepared(rng.integers(levels, size=(5000, d)) @ mixing)) is None


@pytest.mark.parametrize("d", [2, 3, 10, 20])
@pytest.mark.parametrize("rounded", [False, True])
def test_repeated_rows_are_copies_also_if_they_are_fewer_than_values_of_binary_sources(d, rounded, rng):
    x = 100 * rng.normal(size=(400, d))
    x = np.repeat(np.round(x) if rounded else x, 5, axis=0)
    assert len(set(units(prepared(rng.permutation(x))))) == 400 or (rounded and d == 2)


def test_halves_are_blocks_of_successive_rows_in_turn():
    block = blocks_of(None, 1600)
    assert_array_equal(np.bincount(block), np.full(BLOCKS, 100))
    one, other = halves_of(block, 1600)
    assert_array_equal(one[:200], [*range(100), *range(200, 300)])
    assert not set(one) & set(other)
    few = halves_of(block, 80)
    assert [len(half) for half in few] == [80, 80]


def test_sources_that_are_binary_are_identified(rng):
    x = rng.choice([-1.0, 1.0], size=(3000, 3)) @ rng.normal(size=(3, 3))
    assert ICA(random_state=0).fit(x).identified_.all()


def test_dask_rows_are_checked_like_rows_in_memory(rng):
    x = mixed(rng, n=6000)
    here, there = (ICA(random_state=0).fit(rows) for rows in (x, da.from_array(x, chunks=(1500, 5))))
    assert_allclose(there.returned_, here.returned_, atol=1e-3)
    assert_allclose(there.sampling_error_, here.sampling_error_, rtol=1e-3)
    assert_array_equal(there.identified_, [True] * 3 + [False] * 2)


@pytest.mark.parametrize("contrast", ["logcosh", "exp", "cube"])
def test_rows_on_a_device_are_checked_like_arrays(contrast, rng):
    torch = pytest.importorskip("torch")
    x = mixed(rng)
    here = prepare_rows(x, n_components=None, contrast=contrast, whiten=True, device="cpu")
    there = replace(here, data=torch.from_numpy(x), device="cpu:0")  # torch, as on a GPU
    one, other = (components_of(rows, check=True).unmixing for rows in (here, there))
    assert_allclose(other.returned, one.returned, atol=1e-3)
    assert_allclose(other.sampling_error, one.sampling_error, rtol=0.01)
    assert_array_equal(other.identified, one.identified)


def test_too_few_rows_or_clusters_identify_nothing(rng):
    x = mixed(rng, n=3000)
    found = ICA(random_state=0).fit(x, cluster=np.arange(3000) % 3)
    assert not found.identified_.any()
    assert np.isnan(found.returned_).all()  # not checked


def test_the_check_is_saved_and_said(rng, tmp_path):
    x = mixed(rng)
    result = resolve(x)
    result.ica.save(tmp_path / "m.safetensors")
    assert_array_equal(load_ica(tmp_path / "m.safetensors").returned_, result.ica.returned_)
    assert result.settings["check"] is True
    assert result[0]["returned"] > 0.9
    assert "disjoint halves" in str(result.document())
    assert "not checked" in resolve(x, check=False).notes[0]


def test_components_near_the_limit_are_named(rng):
    x = mixed(rng)
    result = resolve(x)
    assert "limit of 0.9" not in " ".join(result.notes)
    found = result.ica.found_
    near = replace(found.unmixing, returned=np.array([0.87, 0.99, 0.94, 0.89, 0.2]))
    result.ica.found_ = replace(found, unmixing=replace(near, identified=near.identified & (near.returned > 0.9)))
    (note,) = (note for note in result.notes if "limit of 0.9" in note)
    assert note.startswith("The correlations of ica0, ica2 across starts or halves are within 0.05")  # ica3 is noise


def test_one_limit_is_stated_on_the_page(rng):
    glossary = dict(resolve(mixed(rng)).document().glossary)
    assert "correlation of at least 0.9)" in glossary["identified"]
    assert "0.95" not in glossary["identified"]
    assert "0.98" not in glossary["identified"]
    assert "11.5°" in glossary["identified"]
    assert "6.9°" in glossary["identified"]


@pytest.mark.filterwarnings("ignore::congruence.errors.CongruenceWarning")
def test_halves_that_start_from_the_components_of_all_rows_are_named(rng):
    few, enough = (resolve(rng.laplace(size=(300, k)), starts=1, max_iter=2).notes for k in (64, 10))
    assert any("too few to find 64 components from a random start (1843 rows are needed)" in note for note in few)
    assert not any("weaker check" in note for note in enough)
