"""Writes small ONNX files by hand: enough of the format for models whose right answer is known without training.

No package writes them here: what the runtime reads is a few kinds of protobuf messages, and a test that writes them itself can also
write what no exporter would, a vector that is no number for example.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FLOAT, INT64 = 1, 7
OPSET = 13


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def tensor(name: str, values: np.ndarray, *, outside: str = "") -> bytes:
    """An initializer of floats or whole numbers. With `outside` its data is said to stand in that file."""
    kind = INT64 if values.dtype.kind == "i" else FLOAT
    head = b"".join(_field(1, size) for size in values.shape) + _field(2, kind) + _field(8, name)
    if outside:
        return head + _field(13, _field(1, "location") + _field(2, outside)) + _field(14, 1)
    return head + _field(9, values.astype("<i8" if kind == INT64 else "<f4").tobytes())


def node(kind: str, inputs: Sequence[str], output: str, **whole: int) -> bytes:
    """One operation; `whole` are its attributes that are whole numbers."""
    attributes = [_field(5, _field(1, name) + _field(3, value) + _field(20, 2)) for name, value in whole.items()]
    return b"".join([*(_field(1, name) for name in inputs), _field(2, output), _field(4, kind), *attributes])


def value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """An input or output; a text in `shape` is a size that is not fixed."""
    dims = b"".join(_field(1, _field(2, size) if isinstance(size, str) else _field(1, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims)))


def model(nodes: Sequence[bytes], tensors: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes]) -> bytes:
    graph = b"".join(
        [
            *(_field(1, one) for one in nodes),
            _field(2, "graph"),
            *(_field(5, one) for one in tensors),
            *(_field(11, one) for one in inputs),
            *(_field(12, one) for one in outputs),
        ]
    )
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, OPSET))


def _ids(names: Sequence[str]) -> list[bytes]:
    return [value(name, INT64, ["batch", "tokens"]) for name in names]


def bi_encoder(table: np.ndarray, *, inputs: Sequence[str] = ("input_ids", "attention_mask"), outside: str = "") -> bytes:
    """Each token's vector is its row of `table`, whatever stands beside it."""
    return model(
        [node("Gather", ["table", "input_ids"], "last_hidden_state", axis=0)],
        [tensor("table", table, outside=outside)],
        _ids(inputs),
        [value("last_hidden_state", FLOAT, ["batch", "tokens", table.shape[1]])],
    )


def cross_encoder(table: np.ndarray, *, classes: int = 1) -> bytes:
    """The score is the product of what the question's rows of `table` sum up to with what the passage's do: with rows that are
    orthogonal, how many words they share. With two classes the second one is the score and the first its opposite."""
    nodes = [
        node("Gather", ["table", "input_ids"], "rows", axis=0),
        node("Cast", ["token_type_ids"], "second", to=FLOAT),
        node("Unsqueeze", ["second", "last"], "of_passage"),
        node("Sub", ["one", "of_passage"], "of_question"),
        node("Mul", ["rows", "of_passage"], "passage_rows"),
        node("Mul", ["rows", "of_question"], "question_rows"),
        node("ReduceSum", ["passage_rows", "tokens"], "passage", keepdims=0),
        node("ReduceSum", ["question_rows", "tokens"], "question", keepdims=0),
        node("Mul", ["passage", "question"], "shared"),
        node("ReduceSum", ["shared", "tokens"], "score", keepdims=1),
        node("MatMul", ["score", "classes"], "logits"),
    ]
    signs = np.array([[1.0] if classes == 1 else [-1.0, 1.0] + [0.0] * (classes - 2)], np.float32)
    tensors = [
        tensor("table", table),
        tensor("last", np.array([2])),
        tensor("tokens", np.array([1])),
        tensor("one", np.array([1.0], np.float32)),
        tensor("classes", signs),
    ]
    return model(
        nodes, tensors, _ids(["input_ids", "attention_mask", "token_type_ids"]), [value("logits", FLOAT, ["batch", classes])]
    )
