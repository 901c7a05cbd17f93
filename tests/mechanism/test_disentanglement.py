"""Is the way from true factors to codes decomposable, at points and over the domain?"""

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.mechanism.domains import LatentDomain

torch = pytest.importorskip("torch")

from congruence.mechanism.disentanglement import measure_disentanglement  # noqa: E402

BLOCKS = [[0, 1], [2]]
CUBE = LatentDomain.box([-1, -1, -1], [1, 1, 1])


@pytest.fixture
def z(rng):
    return rng.uniform(-1, 1, size=(40, 3))


WEIGHTS = torch.randn(3, 7, generator=torch.Generator().manual_seed(0)).double()


def generator(s):
    return torch.cat([s[:, :2].sinh(), s[:, 2:] ** 3 + s[:, 2:]], dim=1) @ WEIGHTS


def factors_of(codes):
    """Codes (c0; c1, c2) stand for (s2; s0, s1): blocks change places and are bent inside."""
    return torch.stack([codes[:, 1] + codes[:, 2] ** 2 / 4, 2 * codes[:, 2], codes[:, 0].sinh()], dim=1)


def model(codes):
    return generator(factors_of(codes))


def entangled(codes):
    return model(codes @ torch.tensor([[1.0, 0.4, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 1.0]]).double())


def test_codes_that_are_functions_of_one_factor_each_are_found_without_codes(z):
    result = measure_disentanglement(generator, model, z, BLOCKS, domain=CUBE)
    assert (result.local.status, result.everywhere.status) == ("holds", "unknown")
    assert result.factor_of == (1, 0, 0)
    assert result.code_blocks == ((1, 2), (0,))
    assert result.worst < 1e-9
    assert result.misses.max() < 1e-9
    assert result.assumed == ("covering",)
    assert result.headlines[1].startswith("By Theorem 1 this extends to the domain if the decoder is a covering map")
    known = measure_disentanglement(generator, model, z, BLOCKS, domain=CUBE, covering=True)
    assert (known.everywhere.status, known.everywhere.basis, known.assumed) == ("holds", "supported", ())
    assert known.headlines[1] == "By Theorem 1 they are disentangled over the domain."


def test_entangled_codes_fail_at_points_and_so_everywhere(z):
    result = measure_disentanglement(generator, entangled, z, BLOCKS, domain=CUBE, covering=True)
    assert (result.local.status, result.everywhere.status) == ("fails", "fails")
    assert result.worst > 0.2
    assert result.headlines[0] == "The codes are entangled at 40 points."


def test_a_little_mixing_is_neither(z):
    mixing = torch.eye(3).double() + 0.01 * torch.tensor([[0.0, 1, 0], [0, 0, 0], [0, 0, 0]]).double()
    result = measure_disentanglement(generator, lambda c: model(c @ mixing), z, BLOCKS, domain=CUBE)
    assert (result.local.status, result.everywhere.status) == ("ambiguous", "ambiguous")
    assert 1e-3 < result.worst < 0.1


def test_an_encoder_alone_or_known_codes_give_the_same(z):
    back = torch.linalg.pinv(WEIGHTS)

    def encode(x):
        y = x @ back
        s0, s1 = y[:, 0].asinh(), y[:, 1].asinh()
        half = y[:, 2] / 2
        root = (half**2 + 1 / 27) ** 0.5  # Cardano
        s2 = (half + root) ** (1 / 3) - (root - half) ** (1 / 3)
        return torch.stack([s2.asinh(), s0 - (s1 / 2) ** 2 / 4, s1 / 2], dim=1)

    alone = measure_disentanglement(generator, None, z, BLOCKS, inverse=encode, domain=CUBE)
    both = measure_disentanglement(generator, model, z, BLOCKS, inverse=encode, domain=CUBE)
    codes = encode(generator(torch.as_tensor(z)))
    given = measure_disentanglement(generator, model, z, BLOCKS, codes=codes, domain=CUBE)
    for result in (alone, both, given):
        assert (result.local.status, result.factor_of) == ("holds", (1, 0, 0))
    assert np.isnan(alone.misses).all()
    assert given.misses.max() < 1e-9


def test_a_generator_that_is_not_invertible_is_no_obstacle():
    def folded(s):  # s and s + 2 pi look the same
        return torch.stack([s[:, 0].cos(), s[:, 0].sin(), s[:, 1].cos(), s[:, 1].sin()], dim=1)

    z = np.random.default_rng(0).uniform(-6, 6, size=(30, 2))
    result = measure_disentanglement(
        folded, lambda c: folded(c.flip(1)), z, domain=LatentDomain.box([-6, -6], [6, 6]), covering=True
    )
    assert (result.local.status, result.everywhere.status, result.everywhere.basis) == ("holds", "holds", "supported")
    assert result.factor_of == (1, 0)


def test_blocks_of_codes_stay_together(z):
    result = measure_disentanglement(generator, model, z, BLOCKS, code_blocks=[[0], [1, 2]], domain=CUBE)
    assert (result.local.status, result.factor_of) == ("holds", (1, 0, 0))
    torn = measure_disentanglement(generator, model, z, BLOCKS, code_blocks=[[0, 1], [2]], domain=CUBE)
    assert torn.local.status == "fails"


def test_a_factor_that_the_codes_do_not_encode_is_named(z):
    result = measure_disentanglement(
        generator, None, z, BLOCKS, inverse=lambda x: (x @ torch.linalg.pinv(WEIGHTS))[:, :2]
    )
    assert (result.local.status, result.lost) == ("fails", (1,))
    assert result.headlines == ("The codes do not encode factor 2.",)


def test_theorem_1_is_not_used_where_its_premises_fail(rng):
    """On a U two arms can be shifted apart: decomposable at every point, and not over the domain."""
    shape = LatentDomain.boxes([([0, 0], [3, 1]), ([0, 1], [1, 2]), ([2, 1], [3, 2])])
    z = rng.uniform(0, 3, size=(400, 2))
    z = z[shape.contains(z)][:120]

    def shifted(s):  # the second code of the right arm runs away from that of the left
        up = s[:, 1] + torch.where((s[:, 0] > 1.5) & (s[:, 1] > 1), (s[:, 1] - 1) ** 3, torch.zeros_like(s[:, 1]))
        return torch.stack([s[:, 0], up, s.sum(1)], dim=1)[:, :2]

    result = measure_disentanglement(lambda s: s, None, z, inverse=shifted, domain=shape)
    assert result.local.status == "holds"
    assert (result.everywhere.status, result.everywhere.basis) == ("unknown", "premise fails")
    assert "With z1 = 1.5 fixed, 2 pieces remain" in result.headlines[1]
    low, high = shifted(torch.tensor([[0.5, 1.8], [2.5, 1.8]]).double())[:, 1]
    assert abs(float(low - high)) > 0.1  # the same factor, two codes


def test_codes_that_change_places_between_points_are_not_disentangled():
    def swapped(s):
        right = (s[:, :1] > 0).double()
        return right * s + (1 - right) * s.flip(1)

    z = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    result = measure_disentanglement(lambda s: s, None, z, inverse=swapped, domain=LatentDomain.box([-1, -1], [1, 1]))
    assert (result.local.status, result.everywhere.status) == ("holds", "fails")
    assert result.changes == min((z[:, 0] > 0).sum(), (z[:, 0] <= 0).sum())
    assert f"They belong to other factors at {result.changes} of them" in result.headlines[1]


def test_points_that_the_model_misses_are_left_out(z):
    result = measure_disentanglement(generator, model, z, BLOCKS, codes=np.zeros_like(z))
    assert (result.local.status, result.everywhere.status) == ("unknown", "unknown")
    assert result.local.evidence == "The model misses all 40 points."
    assert result.notes == ("The model misses 40 of 40 points, which are left out.",)
    assert result.assumed == ()
    assert result.to_dict()["points"] == 0


def test_a_model_whose_outputs_saturate_is_inverted_as_far_as_possible(rng):
    """The search for codes reaches points at which most directions change no output."""
    drawn = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(4, 5, generator=drawn, dtype=torch.float64) for _ in range(2))
    result = measure_disentanglement(lambda s: torch.tanh(s @ a), lambda s: torch.tanh(s @ b), rng.normal(size=(30, 4)))
    assert result.local.status in ("fails", "unknown")
    assert np.isfinite(result.misses).all()


def test_what_cannot_be_used_is_refused(z):
    with pytest.raises(InputError, match="needs decoder, or inverse="):
        measure_disentanglement(generator, None, z)
    with pytest.raises(InputError, match="domain must have the 3 latents of z; got 2"):
        measure_disentanglement(generator, model, z, domain=LatentDomain.box([0, 0], [1, 1]))
    with pytest.raises(InputError, match="a row for each of 40 rows"):
        measure_disentanglement(generator, model, z, codes=z[:3])
    with pytest.raises(InputError, match="codes have NaN or infinite values"):
        measure_disentanglement(generator, model, z, codes=z * np.nan)
    with pytest.raises(InputError, match="the decoder must have the generator's 7 outputs; got 3"):
        measure_disentanglement(generator, lambda c: c, z)
