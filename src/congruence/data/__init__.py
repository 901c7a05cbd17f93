"""Data sets: images with known factors, drawn on the spot or read from a user's files, and handwritten digits."""

from congruence.data.images import FactorImages as FactorImages
from congruence.data.registry import load_images as load_images
from congruence.data.room_images import rooms as rooms
from congruence.data.sprite_images import sprites as sprites
