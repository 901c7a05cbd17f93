import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from congruence.errors import InputError
from congruence.ica._contrasts import CONTRASTS, contrast_named
from congruence.ica._passes import Passes
from congruence.ica._point import point_at, polar, random_gradient, random_rotation
from congruence.ica._solver import _direction, solve
from congruence.ica._spectral import nearer, random_start_rows, rows_needed, spectral_rotation


def white(x):
    x = x - x.mean(0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    return x @ vectors / np.sqrt(values)


def passes(z, contrast="logcosh", **options):
    return Passes(z, np.zeros(z.shape[1]), np.eye(z.shape[1]), contrast_named(contrast), **options)


@pytest.mark.parametrize("name", CONTRASTS)
def test_contrasts_are_what_they_say(name):
    """The derivative of G is g, that of g is g', and the Gaussian's average is right."""
    contrast, s, h = CONTRASTS[name], np.linspace(-3, 3, 61)[:, None], 1e-5

    def g(at):
        at = at.copy()
        sums = contrast.apply(at)
        return at, sums

    value, (_, power) = g(s)
    assert_allclose((contrast.value(s + h) - contrast.value(s - h)) / (2 * h), value, atol=1e-8)
    slopes = (g(s + h)[0] - g(s - h)[0]) / (2 * h)
    assert_allclose([g(row[None])[1][0][0] for row in s], slopes[:, 0], atol=1e-8)
    assert_allclose(power[0], np.square(value).sum())
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    assert_allclose(weights @ contrast.value(nodes) / np.sqrt(2 * np.pi), contrast.gaussian, atol=1e-8)
    assert np.abs(value).max() <= contrast.slope
    assert np.abs(slopes).max() <= contrast.curvature + 1e-8


def test_an_unknown_contrast_is_refused():
    with pytest.raises(InputError, match="contrast must be one of 'logcosh', 'exp', 'cube'; got 'tanh'"):
        contrast_named("tanh")


@given(st.integers(1, 12), st.integers(0, 100))
def test_the_polar_factor_is_the_nearest_rotation(k, seed):
    matrix = np.random.default_rng(seed).normal(size=(k, k))
    u, _, vt = np.linalg.svd(matrix)
    assert_allclose(polar(matrix), u @ vt, atol=1e-9)


def test_the_polar_factor_of_a_nearly_singular_matrix_is_orthogonal(rng):
    matrix = rng.normal(size=(5, 5)) @ np.diag([1, 1, 1, 1e-6, 1e-9])
    assert_allclose(polar(matrix) @ polar(matrix).T, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("name", CONTRASTS)
def test_one_pass_gives_the_averages(name, rng):
    z, rotation = white(rng.laplace(size=(3000, 4))), random_rotation(4, rng)
    s = z @ rotation.T
    g = s.copy()
    slope, power = CONTRASTS[name].apply(g)
    for precision, tolerance in (("float64", 1e-12), ("float32", 2e-5)):
        found = passes(z, name, precision=precision).averages(rotation)
        assert_allclose(found.cross, g.T @ s / len(s), atol=tolerance * np.abs(g.T @ s / len(s)).max())
        assert_allclose(found.slope, slope / len(s), atol=tolerance * 10)
        assert_allclose(found.power, power / len(s), rtol=tolerance * 10)


@pytest.mark.parametrize("name", CONTRASTS)
def test_torch_gives_the_same_averages(name, rng):
    torch = pytest.importorskip("torch")
    x = rng.laplace(size=(3000, 4)).astype(np.float32) + 3
    mean, whitening, rotation = x.mean(0).astype(np.float64), rng.normal(size=(3, 4)), random_rotation(3, rng)
    here = Passes(x, mean, whitening, contrast_named(name), precision="float64")
    for data in (torch.from_numpy(x), x):
        there = Passes(data, mean, whitening, contrast_named(name), device="cpu:0")
        for field in ("cross", "slope", "power"):
            mine = getattr(here.averages(rotation), field)
            assert_allclose(getattr(there.averages(rotation), field), mine, atol=1e-5 * np.abs(mine).max())
        assert_allclose(there.shape(rotation).kurtosis, here.shape(rotation).kurtosis, rtol=1e-4)


def test_torch_takes_some_rows_and_any_dtype(rng):
    torch = pytest.importorskip("torch")
    x, index = rng.integers(-5, 5, size=(200, 3)), np.array([5, 5, 7, 100])
    here = Passes(x, np.zeros(3), np.eye(3), contrast_named("logcosh"), index=index)
    there = Passes(torch.from_numpy(x), np.zeros(3), np.eye(3), contrast_named("logcosh"), device="cpu:0", index=index)
    assert_allclose(there.averages(np.eye(3)).cross, here.averages(np.eye(3)).cross, atol=1e-5)


def test_torch_rows_may_require_a_gradient_and_lie_far_from_the_origin(rng):
    torch = pytest.importorskip("torch")
    x = (rng.exponential(size=(3000, 3)) + 1e5 / 7).astype(np.float32)
    mean, rotation = x.mean(0, dtype=np.float64), random_rotation(3, rng)
    here = Passes(x, mean, np.eye(3), contrast_named("logcosh"), precision="float64")
    learned = torch.from_numpy(x).requires_grad_()
    there = Passes(learned, mean, np.eye(3), contrast_named("logcosh"), device="cpu:0")
    assert_allclose(there.averages(rotation).cross, here.averages(rotation).cross, atol=1e-6)
    assert_allclose(there.shape(rotation).skewness, here.shape(rotation).skewness, rtol=1e-5)


def test_rows_whitened_on_the_way_and_before_give_the_same(rng, monkeypatch):
    x = (rng.laplace(size=(4000, 6)) @ rng.normal(size=(6, 6)) + 9).astype(np.float32)
    mean = x.mean(0, dtype=np.float64)
    _, singular, vt = np.linalg.svd(x - mean, full_matrices=False)
    whitening, rotation = vt / (singular[:, None] / np.sqrt(len(x))), random_rotation(6, rng)
    make = lambda: Passes(x, mean, whitening, contrast_named("logcosh"), precision="float32")  # noqa: E731
    on_the_way = make().averages(rotation)
    monkeypatch.setattr("congruence.ica._passes.ROUND", 0)
    assert_allclose(make().averages(rotation).cross, on_the_way.cross, atol=5e-6)
    monkeypatch.setattr("congruence.ica._passes.CACHE", 0)
    assert_allclose(make().averages(rotation).cross, on_the_way.cross, atol=5e-6)


def test_chunks_and_workers_do_not_change_the_averages(rng, monkeypatch):
    z, rotation = white(rng.laplace(size=(9000, 3))), random_rotation(3, rng)
    whole = passes(z).averages(rotation).cross
    monkeypatch.setattr("congruence.ica._passes.CHUNK", 300)
    monkeypatch.setattr("congruence.ica._passes.blas_threads", lambda: 3)
    assert_allclose(passes(z).averages(rotation).cross, whole, atol=1e-14)


def test_the_solver_shares_the_rows_out_to_all_threads(rng):
    seen = set()
    logcosh = CONTRASTS["logcosh"]

    def apply(s):
        seen.add(threading.current_thread())
        return logcosh.apply(s)

    with threadpool_limits(2, user_api="blas"):
        source = passes(white(rng.laplace(size=(5000, 3))))
        source.contrast = replace(logcosh, apply=apply)
        solve(source, random_rotation(3, rng))
    assert threading.main_thread() not in seen


def test_the_gradient_is_the_derivative_of_the_contrast(rng):
    z, rotation = white(rng.laplace(size=(500, 3))), random_rotation(3, rng)
    point = solve(passes(z), rotation, max_iter=1).point

    def objective(angle):
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        return point.signs @ CONTRASTS["logcosh"].value(z @ (turn @ point.rotation).T).mean(0)

    slope = (objective(1e-5) - objective(-1e-5)) / 2e-5
    assert_allclose(slope, 2 * point.gradient[0, 1], atol=1e-8)


def test_sub_and_super_gaussian_sources_separate_at_once(mixtures):
    x, mixing = mixtures.mixed(mixtures.sources(20_000, 6))
    z = white(x)
    solution = solve(passes(z), random_rotation(6, np.random.default_rng(2)))
    assert solution.converged
    assert solution.changes[-1] < 1e-4
    assert solution.gradients[-1] < 3e-3
    unmixing = np.linalg.lstsq(x - x.mean(0), z @ solution.rotation.T, rcond=None)[0].T
    assert mixtures.amari(unmixing @ mixing) < 0.02


def test_the_sampling_error_is_the_error(mixtures):
    """The angle between found and true components is what the formula says, within a factor of 1.3 on average."""
    x, mixing = mixtures.mixed(mixtures.sources(5000, 16))
    z = white(x)
    solution = solve(passes(z), random_rotation(16, np.random.default_rng(2)))
    unmixing = np.linalg.lstsq(x - x.mean(0), z @ solution.rotation.T, rcond=None)[0].T @ mixing
    angle = np.arccos(np.abs(unmixing).max(1) / np.linalg.norm(unmixing, axis=1))
    ratio = np.sqrt(np.square(angle).mean() / np.square(solution.point.sampling_error).mean())
    assert 1 / 1.3 < ratio < 1.3


@pytest.mark.parametrize(("n", "k"), [(100, 3), (1000, 10), (5000, 30), (3000, 60)])
def test_components_of_noise_are_known_to_be_noise(n, k, rng):
    solution = solve(passes(white(rng.normal(size=(n, k)))), random_rotation(k, rng))
    assert solution.point.noise.all()
    assert not solution.converged
    assert solution.reason == "gaussian"


def test_noise_does_not_pull_at_the_other_components(mixtures, rng):
    s = mixtures.sources(20_000, 12)
    s[:, :5] = rng.normal(size=(20_000, 5))
    z = white(mixtures.mixed(s)[0])
    first, second = (solve(passes(z), random_rotation(12, np.random.default_rng(seed))) for seed in (1, 2))
    assert first.converged
    assert second.converged
    sure = ~first.point.noise
    assert sure.sum() == 7
    agreement = np.abs(first.rotation @ second.rotation.T).max(1)
    assert (1 - agreement[sure]).max() < 1e-7
    assert agreement[~sure].min() < 0.95


def test_rows_that_are_no_mixture_converge(mixtures):
    z = white(mixtures.network_features(20_000, 32))
    solution = solve(passes(z), random_rotation(32, np.random.default_rng(0)))
    assert solution.converged
    assert solution.switched is not None
    assert np.abs(solution.point.gradient).max() < 3e-3 * solution.reference


def test_rows_that_are_not_white_converge(mixtures):
    x = mixtures.mixed(mixtures.sources(2000, 3))[0]
    second = x.T @ x / len(x)
    solution = solve(passes(x), random_rotation(3, np.random.default_rng(0)), covariance=second)
    assert solution.converged
    assert_allclose(solution.rotation @ solution.rotation.T, np.eye(3), atol=1e-10)


def test_the_cap_is_kept_and_told(mixtures):
    z = white(mixtures.network_features(2000, 16))
    source = passes(z)
    solution = solve(source, random_rotation(16, np.random.default_rng(0)), max_iter=9)
    assert source.count == len(solution.changes) == 9
    assert not solution.converged
    assert solution.reason == "cap"


def test_a_sample_knows_the_random_gradient_of_all_rows(mixtures):
    z = white(mixtures.sources(40_000, 8))
    everything = np.mean([random_gradient(passes(z), np.random.default_rng(i), 40_000) for i in range(5)])
    sample = passes(white(z[:4000]))
    few, plain = (
        np.mean([random_gradient(sample, np.random.default_rng(i), n) for i in range(5)]) for n in (40_000, 4000)
    )
    assert everything < few < plain
    assert few < 1.5 * everything


def test_one_component_needs_no_turning(rng):
    solution = solve(passes(white(rng.normal(size=(50, 1)))), np.eye(1))
    assert solution.converged
    assert solution.changes == []


@pytest.mark.parametrize("data", ["mixture", "network"])
def test_torch_finds_the_same_rotation(data, mixtures, rng):
    """The whole solver runs on tensors, as it does on a GPU."""
    torch = pytest.importorskip("torch")
    s = mixtures.sources(20_000, 10)
    s[:, :3] = rng.normal(size=(20_000, 3))
    z = white(s if data == "mixture" else mixtures.network_features(20_000, 10))
    there = Passes(torch.from_numpy(z), np.zeros(10), np.eye(10), contrast_named("logcosh"), device="cpu:0")
    start = random_rotation(10, np.random.default_rng(1))
    here, tensor = solve(passes(z), start), solve(there, start)
    assert isinstance(tensor.point.rotation, torch.Tensor)
    assert isinstance(tensor.rotation, np.ndarray)
    assert tensor.converged
    sure = ~here.point.noise
    agreement = np.abs(here.rotation @ tensor.rotation.T).max(1)
    assert_allclose(agreement[sure], 1, atol=1e-7)
    assert_array_equal(tensor.point.noise.numpy(), here.point.noise)


def test_torch_rows_far_from_round_are_whitened_first(rng):
    """Folding the whitening into float32 products would leave a thousandth of a radian here."""
    torch = pytest.importorskip("torch")
    x = (rng.laplace(size=(5000, 4)) * [1, 1e-2, 1e-3, 1e-5] + 3).astype(np.float32).astype(np.float64)
    mean, whitening = x.mean(0), np.diag(1 / x.std(0))
    here = Passes(x, mean, whitening, contrast_named("logcosh"), precision="float64")
    there = Passes(torch.from_numpy(x).float(), mean, whitening, contrast_named("logcosh"), device="cpu:0")
    rotation = random_rotation(4, rng)
    assert_allclose(there.averages(rotation).cross.numpy(), here.averages(rotation).cross, atol=1e-6)


def test_torch_rows_that_do_not_fit_are_read_in_every_pass(rng, monkeypatch):
    torch = pytest.importorskip("torch")
    x = rng.laplace(size=(3000, 4)).astype(np.float32)
    make = lambda: Passes(x, np.zeros(4), np.eye(4), contrast_named("logcosh"), device="cpu:0")  # noqa: E731
    kept = make().averages(np.eye(4)).cross
    monkeypatch.setattr("congruence.ica._passes.HOST_BYTES", 0)
    monkeypatch.setattr("congruence.ica._passes.DEVICE_CHUNK", 1000)
    assert_allclose(make().averages(np.eye(4)).cross, kept, atol=5e-6)
    assert isinstance(kept, torch.Tensor)


def test_the_polar_factor_of_a_tensor_is_the_same(rng):
    torch = pytest.importorskip("torch")
    for matrix in (rng.normal(size=(6, 6)), np.diag([1.0, 1e-3, 1.0, 1.0]), np.diag([1.0, 1e-12, 1.0])):
        assert_allclose(polar(torch.from_numpy(matrix)).numpy(), polar(matrix), atol=1e-9)


class Rounded(Passes):
    """Averages that are off by a thousandth while they may be rough, as tf32 products would leave them."""

    rounds = True

    def averages(self, rotation, *, rough=False):
        found = super().averages(rotation)
        self.kinds = [*getattr(self, "kinds", []), rough]
        off = np.random.default_rng(self.count).uniform(0.999, 1.001, found.cross.shape)
        return replace(found, cross=found.cross * off) if rough else found


@pytest.mark.parametrize("mixed", [True, False])
def test_rough_averages_lead_the_way_but_do_not_decide(mixed):
    rng = np.random.default_rng(3)
    x = rng.laplace(size=(20_000, 8))
    x = x if mixed else np.tanh(x @ rng.normal(size=(8, 8))) + 0.3 * x @ rng.normal(size=(8, 8))
    z, start = white(x), random_rotation(8, rng)
    rounded = Rounded(z, np.zeros(8), np.eye(8), contrast_named("logcosh"))
    found, exact = solve(rounded, start, tol=1e-6), solve(passes(z), start, tol=1e-6)
    assert found.converged
    assert_allclose(np.abs(found.rotation @ exact.rotation.T).max(1), 1, atol=1e-8)
    first_exact = rounded.kinds.index(False)
    assert 1 < first_exact < len(rounded.kinds) - 1
    assert not any(rounded.kinds[first_exact:])


@pytest.mark.parametrize("m", [1, 3, 7])
def test_the_direction_is_that_of_the_two_loop_recursion(m):
    rng = np.random.default_rng(m)
    skew = lambda: (lambda a: a - a.T)(rng.normal(size=(5, 5)))  # noqa: E731
    point = point_at(random_rotation(5, rng), passes(white(rng.laplace(size=(500, 5)))))
    curvature = point.curvature.clip(0.01 * np.median(point.curvature))
    bent = np.outer(*[rng.uniform(1, 2, 5)] * 2)
    steps = [skew() for _ in range(m)]
    memory = [(step, step * bent) for step in steps]
    left, weights = point.gradient, []
    for step, change in reversed(memory):
        weights.append((step * left).sum() / (step * change).sum())
        left = left - weights[-1] * change
    left = left / curvature
    for (step, change), weight in zip(memory, reversed(weights), strict=True):
        left = left + (weight - (change * left).sum() / (step * change).sum()) * step
    assert_allclose(_direction(point, memory), -left, atol=1e-10 * np.abs(left).max())
    assert len(memory) == m


def test_a_pass_over_some_components_has_their_averages(mixtures):
    z = white(mixtures.network_features(3000, 12))
    rotation, some = random_rotation(12, np.random.default_rng(0)), [7, 2, 9]
    every, part = passes(z).averages(rotation), passes(z).averages(rotation[some])
    assert_allclose(part.cross, every.cross[np.ix_(some, some)], atol=1e-12)
    assert_allclose(part.slope, every.slope[some])
    assert_allclose(part.power, every.power[some])


def test_components_that_found_their_source_are_left_out_of_passes(mixtures):
    class Counted(Passes):
        widths = ()

        def averages(self, rotation, *, rough=False):
            self.widths = (*self.widths, len(rotation))
            return super().averages(rotation, rough=rough)

    z = white(mixtures.mixed(mixtures.sources(20_000, 64))[0])
    source = Counted(z, np.zeros(64), np.eye(64), contrast_named("logcosh"))
    solution = solve(source, random_rotation(64, np.random.default_rng(0)))
    assert solution.converged
    assert solution.point.rotation.shape == (64, 64)
    assert_allclose(solution.rotation @ solution.rotation.T, np.eye(64), atol=1e-12)
    assert min(source.widths) < 16
    assert source.widths[-1] == 64
    assert len(source.widths) == len(solution.changes)


def test_threads_are_started_once(mixtures, monkeypatch):
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread)))
    source = passes(white(mixtures.network_features(8000, 8)))
    source.workers = 2
    for _ in range(6):
        source.averages(random_rotation(8, np.random.default_rng(0)))
    assert 1 <= len(started) <= 2


def fourth_moments(z, matrix):
    return np.einsum("n,ni,nj->ij", np.einsum("ni,ij,nj->n", z, matrix, z), z, z) / len(z)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_fourth_moments_are_contracted_with_a_matrix(mixtures, device):
    if device != "cpu":
        pytest.importorskip("torch")
    x = mixtures.mixed(mixtures.sources(4000, 6))[0]
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False, bias=True))
    whitening = (vectors / np.sqrt(values)).T
    matrix = np.random.default_rng(0).normal(size=(6, 6))
    matrix = (matrix + matrix.T) / 1e3  # so small that no row is far
    source = Passes(x, x.mean(0), whitening, contrast_named("logcosh"), precision="float64", device=device)
    assert_allclose(source.fourth(matrix).product, fourth_moments((x - x.mean(0)) @ whitening.T, matrix), atol=1e-10)


def test_a_far_row_does_not_decide_fourth_moments(mixtures):
    z = white(mixtures.sources(4000, 6))
    matrix = np.diag([1.0, -1.0, 0, 0, 0, 0]) / np.sqrt(2)
    z[0, 0] = 1e3
    assert np.abs(passes(z).fourth(matrix).product).max() < 10 * 1e6 / 4000 + 10


def test_a_spectral_start_is_nearer_to_the_sources_than_a_random_one():
    d = 64
    sources = np.random.default_rng(0).laplace(size=(8 * d**2, d))
    z = white(sources)
    axes = np.linalg.lstsq(z, sources, rcond=None)[0]
    axes /= np.linalg.norm(axes, axis=0)
    begin = random_rotation(d, np.random.default_rng(1))
    near = spectral_rotation(passes(z), begin, np.random.default_rng(2))
    again = spectral_rotation(passes(z), begin, np.random.default_rng(2))
    assert_array_equal(near, again)
    assert_allclose(near @ near.T, np.eye(d), atol=1e-12)
    overlap = [np.median(np.abs(rotation @ axes).max(0)) for rotation in (begin, near)]
    assert overlap[0] < 0.4
    assert overlap[1] > 0.6


def test_a_span_is_kept(mixtures):
    z = white(mixtures.sources(4000, 12))
    span = random_rotation(12, np.random.default_rng(0))[:5]
    near = spectral_rotation(passes(z), span, np.random.default_rng(1))
    assert_allclose(near @ span.T @ span, near, atol=1e-12)


def test_starts_are_random_where_rows_suffice_or_are_too_few():
    rng = np.random.default_rng(0)
    begin = [random_rotation(80, rng)]
    for n, same in ((rows_needed(80) - 1, True), (rows_needed(80), False), (int(random_start_rows(80)) + 1, True)):
        source = passes(rng.normal(size=(n, 80)))
        assert (nearer(source, begin, rng) is begin) is same


def test_flat_sources_are_found_beside_peaked_ones_in_few_rows():
    """Half the sources are flat; their components are started again once the peaked ones are found."""
    d, rng = 128, np.random.default_rng(3)
    z = np.empty((d**2 // 2, d))
    z[:, ::2], z[:, 1::2] = rng.laplace(size=(len(z), d // 2)), rng.uniform(-1, 1, size=(len(z), d // 2))
    source = passes(white(z), precision="float32")
    solution = solve(source, spectral_rotation(source, random_rotation(d, rng), rng), max_iter=200)
    assert solution.converged
    assert not solution.point.noise.any()


def test_rows_without_components_end_early(rng):
    solution = solve(passes(white(rng.normal(size=(1500, 128)))), random_rotation(128, rng))
    assert solution.reason == "gaussian"
    assert len(solution.changes) < 40


@pytest.mark.parametrize("seed", range(8))
def test_the_moves_of_all_components_are_known_wherever_the_solver_stops(seed, monkeypatch):
    """A pass over the components that still move must not leave the moves of these alone."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr("congruence.ica._solver.HOPELESS", 2)
    monkeypatch.setattr("congruence.ica._solver.FEWER", 1.0)
    x = rng.normal(size=(400, 6))
    x = (x - x.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, bias=True))).T
    source = Passes(x, np.zeros(6), np.eye(6), contrast_named("logcosh"))
    solution = solve(source, random_rotation(6, rng))
    assert solution.moves.shape == (6,)
