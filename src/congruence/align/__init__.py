"""Did retraining only rotate my embeddings? `compare` answers; `Aligner` undoes the rotation."""
