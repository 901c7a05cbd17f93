"""The recipe `mixture-likelihood`: the likelihood of random ReLU mixtures and its minimisers."""
