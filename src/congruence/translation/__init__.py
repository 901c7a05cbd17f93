"""Can new vectors stand in for old ones? Maps between embedding models and their certificates."""
