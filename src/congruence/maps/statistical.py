"""From the truth to two trainings: what nearness to the factors says about nearness of trainings to each other."""

from __future__ import annotations

import math

from congruence.errors import InputError


def statistical_from_structural(epsilon: float, lipschitz_of_inverse: float = 1.0) -> float:
    """How far apart two trainings can be that are both within `epsilon` of the factors: 2 C epsilon.

    If |h1 f - u| <= epsilon and |h2 f' - u| <= epsilon everywhere, then |f - h1^-1 h2 f'| <= 2 C epsilon, where C
    bounds how much h1^-1 stretches: structural near-identifiability implies the statistical one.

    Parameters
    ----------
    epsilon : float
        The supremum of the structural error (Definition 2), in any unit; the answer has the same.
    lipschitz_of_inverse : float
        C, 1 for permutations and rigid maps; of a similarity 1 / scale, of a linear map 1 / its least singular value.

    References
    ----------
    Nelson et al. 2026, appendix A.5.
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon must be a number of at least 0, not {epsilon!r}")
    if not (math.isfinite(lipschitz_of_inverse) and lipschitz_of_inverse > 0):
        raise InputError(f"lipschitz_of_inverse must be a number above 0, not {lipschitz_of_inverse!r}")
    return 2.0 * lipschitz_of_inverse * epsilon
