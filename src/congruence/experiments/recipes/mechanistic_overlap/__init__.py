"""The recipe `mechanistic-overlap`: slots whose supports overlap more and more."""
