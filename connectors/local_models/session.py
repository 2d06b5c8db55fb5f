"""The runtime: onnxruntime on this machine's processor, silent, and stopped when a deadline has passed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # has to stand before the import; the pinned version has no telemetry either

import onnxruntime as ort


def open_session(model: str | bytes, threads: int) -> Any:
    """From a file or from its bytes."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_within(session: Any, outputs: Sequence[str], inputs: Mapping[str, Any], deadline_s: float | None) -> list[Any]:
    """Raises whatever the runtime raises; what is still running at the deadline is stopped and raises, too."""
    if deadline_s is None:
        return list(session.run(list(outputs), dict(inputs)))
    options = ort.RunOptions()
    timer = threading.Timer(max(0.0, deadline_s), _stop, (options,))
    timer.daemon = True
    timer.start()
    try:
        return list(session.run(list(outputs), dict(inputs), options))
    finally:
        timer.cancel()


def _stop(options: Any) -> None:
    options.terminate = True
