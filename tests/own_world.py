"""Folders with models of one's own, made tiny: what they ought to say of a text is known without training them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from connectors.local_models import read_files
from tests import onnx_file

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *"pump controller reset valve torque gearbox bolts holiday staff claim approved query passage the of and , . : ? Pump é".split(),
    *[f"word{at}" for at in range(40)],
    "4012",
    "times",
    "##s",
]
VOCABULARY = [*SPECIAL, *WORDS]


def axes(width: int, special: float = 0.0) -> np.ndarray:
    """One direction a word, so that texts are as near as they share words; special tokens point nowhere, or all in one direction."""
    table = np.zeros((len(VOCABULARY), width), np.float32)
    for at in range(len(SPECIAL), len(VOCABULARY)):
        table[at, at % width] = 1.0
    table[: len(SPECIAL), 0] = special
    return table


def scattered(count: int, width: int, seed: int = 1) -> np.ndarray:
    """A direction a word for vocabularies of any size: nearly orthogonal, special tokens and stop characters nowhere."""
    table = np.random.RandomState(seed).standard_normal((count, width)).astype(np.float32) / np.float32(width**0.5)
    table[:1_996] = 0
    return table


def write_folder(folder: Path, model: bytes, files: Mapping[str, Any] | None = None, vocabulary: str | None = None) -> Path:
    """`files` are what a folder says of its model, by name; None leaves one of the usual ones out."""
    said: dict[str, Any] = {
        "vocab.txt": "\n".join(VOCABULARY) + "\n" if vocabulary is None else vocabulary,
        "config.json": {"model_type": "bert", "max_position_embeddings": 128},
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
        "tokenizer_config.json": {"do_lower_case": True},
        **(files or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    for name, value in said.items():
        if value is None:
            continue
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder


def write_bi_encoder(folder: Path, width: int = 64, **files: Any) -> Path:
    return write_folder(folder, onnx_file.bi_encoder(axes(width)), files)


def write_cross_encoder(folder: Path, *, classes: int = 1, **files: Any) -> Path:
    return write_folder(folder, onnx_file.cross_encoder(axes(len(VOCABULARY)), classes=classes), files)


def digest_of(folder: Path, file: str | None = None) -> str:
    return read_files(folder, file).sha256


def write_foreign_tokenizer(folder: Path) -> None:
    """A vocabulary that is not BERT's: words behind a mark, `<s>` and `</s>` around them. Takes the place of vocab.txt."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    pieces = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *(f"▁{word}" for word in WORDS)]
    made = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()])
    made.add_special_tokens([AddedToken(one, special=True) for one in pieces[:5]])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s>:1 $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')


# --- the small world with models of its own -----------------------------------------------------------------------------

SHIPPED_VOCABULARY = (Path(__file__).parents[1] / "router" / "model" / "vocab.txt").read_text(encoding="utf-8")
PIECES = SHIPPED_VOCABULARY.count("\n")
LIMITS = {"config.json": {"model_type": "bert", "max_position_embeddings": 256}}


def write_large(folder: Path, kind: str, seed: int = 1, width: int = 64) -> Path:
    """A model over the words of the shipped one, so that any page has words for it."""
    build = onnx_file.bi_encoder if kind == "bi_encoder" else onnx_file.cross_encoder
    return write_folder(folder, build(scattered(PIECES, width, seed)), LIMITS, SHIPPED_VOCABULARY)


def name_models(config: Path, *, embedder: bool = True, reranker: bool = True, passages: int = 20, declared: bool = True) -> None:
    """Writes `models/` beside the configuration and names them in it."""
    said = ""
    for kind, wanted, use in (
        ("bi_encoder", embedder, '[models]\nembedder = "bi_encoder"\n'),
        ("cross_encoder", reranker, '[search]\nrerank_by = "cross_encoder"\n'),
    ):
        if wanted:
            folder = write_large(config.parent / "models" / kind, kind)
            digest = f'sha256 = "{digest_of(folder)}"\n' if declared else ""
            more = f"passages = {passages}\n" if kind == "cross_encoder" else ""
            said += f'{use}[models.{kind}]\npath = "models/{kind}"\n{digest}{more}'
    config.write_text(f"{config.read_text()}\n{said}")
