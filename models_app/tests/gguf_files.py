"""Tiny models as GGUF, written by hand: a random Llama whose tokens are bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

WIDTH, WORDS, CONTEXT, ALIGNMENT = 32, 260, 512, 32
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }} in <tool_call></tool_call>\n{% endif %}"
    "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}"
)
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def values(**changes) -> dict[str, tuple]:
    """Return the entries of the header by key, each a type and a value; None as a change leaves an entry out."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    given = {
        "general.architecture": (STRING, "llama"), "general.name": (STRING, "tiny"), "general.file_type": (U32, 0),
        "llama.context_length": (U32, CONTEXT), "llama.embedding_length": (U32, WIDTH), "llama.block_count": (U32, 1),
        "llama.feed_forward_length": (U32, WIDTH), "llama.attention.head_count": (U32, 2),
        "llama.attention.head_count_kv": (U32, 2), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.dimension_count": (U32, WIDTH // 2), "llama.vocab_size": (U32, WORDS),
        "tokenizer.ggml.model": (STRING, "llama"), "tokenizer.ggml.tokens": (ARRAY, (STRING, words)),
        "tokenizer.ggml.scores": (ARRAY, (F32, [0.0] * WORDS)),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [2, 3, 3, *[6] * 256, 1])),
        "tokenizer.ggml.bos_token_id": (U32, 1), "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.unknown_token_id": (U32, 0), "tokenizer.ggml.add_bos_token": (BOOL, True),
        "tokenizer.ggml.add_space_prefix": (BOOL, False), "tokenizer.chat_template": (STRING, TEMPLATE),
    }  # fmt: skip
    return {key: entry for key, entry in (given | changes).items() if entry is not None}


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    inside = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {"token_embd": (WORDS, WIDTH), "output": (WORDS, WIDTH)} | {f"blk.0.{n}": (WIDTH, WIDTH) for n in inside}
    made = {f"{name}.weight": random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    ones = np.ones(WIDTH, np.float32)
    return made | {f"{name}.weight": ones for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}


def write(path: Path, entries: dict | None = None, arrays: dict | None = None) -> Path:
    """Write a model; `arrays` are its tensors by name."""
    entries, arrays = values() if entries is None else entries, tensors() if arrays is None else arrays
    head = b"GGUF" + struct.pack("<IQQ", 3, len(arrays), len(entries))
    head += b"".join(
        _text(key) + struct.pack("<I", kind) + _value(kind, value) for key, (kind, value) in entries.items()
    )
    data = b""
    for name, array in arrays.items():
        sides = array.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, 0, len(data))
        data += _padded(array.tobytes())
    path.write_bytes(_padded(head) + data)
    return path


def write_parts(folder: Path, count: int = 2) -> list[Path]:
    """Write a model in parts, as gguf-split does."""
    names, parts = list(tensors().items()), []
    for at in range(count):
        entries = values() if at == 0 else {}
        split = {"split.no": (2, at), "split.count": (2, count), "split.tensors.count": (I32, len(names))}
        parts.append(folder / f"tiny-{at + 1:05}-of-{count:05}.gguf")
        write(parts[-1], entries | split, dict(names[at::count]))
    return parts


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind == ARRAY:
        kind, values = value
        return struct.pack("<IQ", kind, len(values)) + b"".join(_value(kind, one) for one in values)
    return struct.pack({2: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)
