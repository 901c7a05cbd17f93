"""The recipe `isometry-regularisers`: autoencoders with and without a regulariser."""
