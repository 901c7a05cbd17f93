"""Are the axes the true factors? Learned codes measured against known factors."""
