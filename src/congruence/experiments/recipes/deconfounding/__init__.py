"""The recipe `deconfounding`: whitening and ICA of a simulated or real screen, evaluated on held-out plates."""
