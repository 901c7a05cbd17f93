"""Finished parts of a recipe on disk; see `congruence.parts`."""

from congruence.parts import Arrays as Arrays
from congruence.parts import Parts as Parts
