"""Inference in one place: intervals, resampling of clusters, permutation nulls and one-to-one matching."""
