"""What a site and the copy of it that answers say to each other: a JSON header and named bytes, in one frame."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load, save

LENGTH_BYTES = 8


def as_frame(header: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> bytes:
    """One frame; the names of the bytes are the caller's affair."""
    text = json.dumps(header).encode()
    arrays = {name: np.frombuffer(blob, dtype=np.uint8) for name, blob in (blobs or {}).items()}
    return len(text).to_bytes(LENGTH_BYTES, "little") + text + save(arrays)


def from_frame(frame: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    end = LENGTH_BYTES + int.from_bytes(frame[:LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(frame[LENGTH_BYTES:end])
    return header, {name: array.tobytes() for name, array in load(frame[end:]).items()}
