"""Does it generalise to batches it has never seen? Embeddings judged by classifiers on batches held out."""

from congruence.batches.suite import deconfound as deconfound

__all__ = ["deconfound"]
