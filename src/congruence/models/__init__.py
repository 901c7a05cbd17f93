"""Models whose representations can be asked about."""
