"""Similarities that need no map: how alike are two runs with paired rows?

Each measure is a function of two arrays; `MEASURES` says what each one ignores, its range and its direction.
"""

from congruence.align.similarities.cca import pwcca, svcca
from congruence.align.similarities.distances import rsa, rsa_pearson
from congruence.align.similarities.kernels import cka, plain_cka
from congruence.align.similarities.neighbours import neighbour_overlap
from congruence.align.similarities.registry import MEASURES, Measure
from congruence.align.similarities.shapes import angular_procrustes, procrustes, size_and_shape
from congruence.maps.matching import strong_mcc, weak_mcc

__all__ = [
    "MEASURES",
    "Measure",
    "angular_procrustes",
    "cka",
    "neighbour_overlap",
    "plain_cka",
    "procrustes",
    "pwcca",
    "rsa",
    "rsa_pearson",
    "size_and_shape",
    "strong_mcc",
    "svcca",
    "weak_mcc",
]
