"""Data sets: images and rows with known factors, drawn on the spot or read from a user's files; handwritten digits."""

from congruence.data.bent_shapes import circles as circles
from congruence.data.bent_shapes import half_moons as half_moons
from congruence.data.images import FactorImages as FactorImages
from congruence.data.pinwheels import pinwheel as pinwheel
from congruence.data.registry import load_data as load_data
from congruence.data.registry import load_images as load_images
from congruence.data.relu_mixtures import random_relu_mixture as random_relu_mixture
from congruence.data.room_images import rooms as rooms
from congruence.data.row_sets import load_rows as load_rows
from congruence.data.rows import FactorRows as FactorRows
from congruence.data.sprite_images import sprites as sprites
