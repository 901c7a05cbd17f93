"""The recipe `mixture-mnist`: multi-facet clustering VAEs on handwritten digits."""
