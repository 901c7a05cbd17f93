"""Undoing the ambiguity without labels: whitening and independent components."""
