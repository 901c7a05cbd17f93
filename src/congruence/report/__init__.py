"""Renderers of documents: HTML page, notebook cell, terminal text, Markdown; and the figures of results."""
