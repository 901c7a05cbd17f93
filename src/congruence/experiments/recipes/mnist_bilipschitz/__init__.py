"""The recipe `mnist-bilipschitz`: pairs of orthogonal autoencoders on handwritten digits."""
