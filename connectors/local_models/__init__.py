"""Models on this machine: the embedder that ships, and those of one's own on the same runtime."""

from connectors.local_models.files import read_files
from connectors.local_models.own import BiEncoder, Choices, CrossEncoder, load_bi_encoder, load_cross_encoder
from connectors.local_models.shipped import FILES, MAX_TOKENS, TOKEN_DIMENSIONS, MiniLM, load_embedder
from connectors.local_models.wordpiece import Reading, WordPiece

__all__ = [
    "FILES",
    "MAX_TOKENS",
    "TOKEN_DIMENSIONS",
    "BiEncoder",
    "Choices",
    "CrossEncoder",
    "MiniLM",
    "Reading",
    "WordPiece",
    "load_bi_encoder",
    "load_cross_encoder",
    "load_embedder",
    "read_files",
]
