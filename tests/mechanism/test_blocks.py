"""Blocks of latents, as lists and as text."""

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.mechanism._blocks import label_members, read_blocks, write_blocks


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ("0-1,2,3-4", ((0, 1), (2,), (3, 4))),
        (" 0 - 1 , 2,3-4", ((0, 1), (2,), (3, 4))),
        ("0+2,1,3-4", ((0, 2), (1,), (3, 4))),
        ([[1, 0], 2, np.array([3, 4])], ((0, 1), (2,), (3, 4))),
        (None, ((0,), (1,), (2,), (3,), (4,))),
    ],
)
def test_blocks_are_read(blocks, expected):
    assert read_blocks(blocks, 5) == expected
    assert read_blocks(write_blocks(expected), 5) == expected


def test_which_block_a_latent_is_in():
    assert label_members(((0, 2), (1,), (3, 4))).tolist() == [0, 1, 0, 2, 2]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ("0-1,x", "blocks must be written like"),
        ("1-0,2", "rising ranges of at most 1000000 latents; got '1-0'"),
        ("0-9999999", "got '0-9999999'"),
        ("0,1,3", "blocks must name latents from 0 to 2; got latent 3"),
        ("0,1", "latent 2 is in none of"),
        ([[0, 1], [1, 2]], "latent 1 is in more than one place"),
        ([[0, 1, 2], []], "blocks must not be empty"),
        ([[0.0, 1], [2]], "blocks must be a list of lists of integers"),
        (3, "blocks must be a list of lists of integers"),
        ([[True, 1], [2]], "blocks must be a list of lists of integers"),
    ],
)
def test_blocks_that_are_no_partition_are_refused(blocks, message):
    with pytest.raises(InputError, match=message):
        read_blocks(blocks, 3)
