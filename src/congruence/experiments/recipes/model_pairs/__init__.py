"""The recipe `model-pairs`: pairs of language models, masked autoencoders, classifiers and graph networks."""
