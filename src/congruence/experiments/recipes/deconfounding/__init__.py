"""The recipe `deconfounding`: whitening and ICA of a simulated screen, evaluated on held-out plates."""
