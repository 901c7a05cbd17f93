"""Embedding tables: values, row ids and row metadata, from files, frames and arrays; read, write and join by id."""

from congruence._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
