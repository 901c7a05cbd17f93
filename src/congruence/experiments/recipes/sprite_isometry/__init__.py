"""The recipe `sprite-isometry`: images of a square that moves and grows."""
