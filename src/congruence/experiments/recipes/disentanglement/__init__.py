"""The recipe `disentanglement`: ICA on a plain autoencoder against models that were made to disentangle."""
