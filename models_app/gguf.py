"""Language models as GGUF, the format of llama.cpp: one file, or several parts of it. No Django.

Imported by loading.py and apps/serving, which are runs, too. A file of this format has no code. The package
llama-cpp-python is one of the model's own (requirements.txt beside it, or a named environment); what the header says is
verified without it. Source: ggml's docs/gguf.md and ggml-common.h.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path

FORMAT, SUFFIX, MAGIC = "gguf", ".gguf", b"GGUF"
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")  # as llama.cpp's gguf-split names parts
POINTER = b"version https://git-lfs"
VERSIONS = (2, 3)
HEADER_BYTES = 512 << 20
MOST_ENTRIES, MOST_TENSORS = 1 << 16, 1 << 18
MOST_WORDS = 1 << 21  # texts in all lists of a header: several times the largest vocabulary with its merges
MOST_SHOWN, MOST_KEPT = 1 << 20, 16 << 20  # bytes of a text that is kept, and of all texts together
SHORTEST = 8  # bytes of a text, or of a list in a list
ERROR_LEVEL, MOST_ERRORS = 4, 20  # of ggml's log
LOADED_BYTES = 512 << 20  # of a model that the check loads; of larger ones it loads the vocabulary
SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
QUANTIZATIONS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
BLOCKS = {  # of a type of tensors: numbers in a block, its bytes; a tensor of another type is not measured
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2),
}  # fmt: skip
ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "gemma-embedding")
OTHERS = {"clip": "an encoder of pictures, not the language model beside it"}


class Unusable(Exception):
    """The file is no language model that can be served; the message says why."""


def first_parts(paths: list[Path]) -> list[Path]:
    """Return the files without those that are a further part of another one."""
    known, seen = [], set()
    for path in sorted(paths):
        match = PART.fullmatch(path.name)
        whole = (path.parent, match[1], match[3]) if match else (path,)
        if whole not in seen:
            seen.add(whole)
            known.append(path)
    return known


def parts_of(path: Path) -> list[Path]:
    """Return all parts of a model. Raises Unusable where one is missing."""
    match = PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match[3])
    if not 0 < count <= MOST_ENTRIES:
        raise Unusable(f"{path.name}: {count} is no number of parts")
    parts = [path.with_name(f"{match[1]}-{at:05}-of-{count:05}{SUFFIX}") for at in range(1, count + 1)]
    if missing := next((part.name for part in parts if not part.is_file()), ""):
        raise Unusable(f"{missing}: is missing; all {count} parts of the model must be in one folder")
    return parts


class Header:
    """The header of a file: `values` by key, without long arrays, and the byte at which its tensors end."""

    def __init__(self, path: Path):
        self.path, self.values, self.tensors, self.end = path, {}, 0, 0
        self.kept = self.words = 0  # bytes of texts, texts in lists
        self.size = path.stat().st_size
        with path.open("rb") as self.file:
            try:
                self._read()
            except (struct.error, UnicodeDecodeError, OverflowError):
                raise Unusable(f"{path.name}: is truncated or no GGUF file") from None
        if self.end > self.size:
            raise Unusable(f"{path.name}: is truncated, it has {self.size} of {self.end} bytes")

    def _read(self) -> None:
        magic = self.file.read(4)
        if magic and POINTER.startswith(magic):
            raise Unusable(f"{self.path.name}: is a pointer of Git LFS, not the file; download it with git lfs pull")
        if magic != MAGIC:
            raise Unusable(f"{self.path.name}: is no GGUF file")
        version, self.tensors, entries = self._number("I"), self._number("Q"), self._number("Q")
        if version not in VERSIONS:
            raise Unusable(f"{self.path.name}: has version {version} of the format; {VERSIONS[0]} and 3 are read")
        if entries > MOST_ENTRIES or self.tensors > MOST_TENSORS:
            raise Unusable(f"{self.path.name}: is no GGUF file, its header is too long")
        for _ in range(entries):
            key = self._text()
            self.values[key] = self._value(self._number("I"))
        ends = [self._tensor() for _ in range(self.tensors)]
        alignment = self.values.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise Unusable(f"{self.path.name}: general.alignment must be a positive number")
        self.end = -(-self.file.tell() // alignment) * alignment + max(ends) if ends else 0

    def _tensor(self) -> int:
        """Read the description of a tensor; return the byte behind its data, counted from where they begin."""
        self._skip_text()
        dimensions = self._number("I")
        if dimensions > 8:
            raise Unusable(f"{self.path.name}: a tensor has {dimensions} dimensions")
        count = 1
        for _ in range(dimensions):
            count *= self._number("Q")
        kind, offset = self._number("I"), self._number("Q")
        numbers, size = BLOCKS.get(kind, (1, 0))
        return offset + count // numbers * size

    def _number(self, kind: str):
        size = struct.calcsize(f"<{kind}")
        return struct.unpack(f"<{kind}", self.file.read(size))[0]

    def _text(self) -> str:
        """Return a text, empty where it is longer than any that matters here."""
        length = self._number("Q")
        self._require_room(length)
        if length > MOST_SHOWN or self.kept + length > MOST_KEPT:
            self.file.seek(length, 1)
            return ""
        self.kept += length
        text = self.file.read(length)
        if len(text) < length:
            raise struct.error
        return text.decode(errors="replace")

    def _skip_text(self) -> None:
        length = self._number("Q")
        self._require_room(length)
        self.file.seek(length, 1)

    def _require_room(self, length: int) -> None:
        if self.file.tell() + length > min(self.size, HEADER_BYTES):
            raise struct.error

    def _value(self, kind: int, depth: int = 0):
        """Return a value; None for an array, which is skipped."""
        if kind in SIMPLE:
            return self._number(SIMPLE[kind])
        if kind == STRING:
            return self._text()
        if kind != ARRAY or depth > 2:
            raise Unusable(f"{self.path.name}: has a value of the unknown type {kind}")
        kind, count = self._number("I"), self._number("Q")
        if kind in SIMPLE:
            size = struct.calcsize(f"<{SIMPLE[kind]}") * count
            self._require_room(size)
            self.file.seek(size, 1)
            return None
        self._require_room(count * SHORTEST)
        self.words += count
        if self.words > MOST_WORDS:
            raise Unusable(f"{self.path.name}: has more than {MOST_WORDS} texts in its header")
        for _ in range(count):
            if kind == STRING:
                self._skip_text()
            else:
                self._value(kind, depth + 1)
        return None


def verify(path: Path) -> dict:
    """Check the headers of a model without loading it; return what is said of it: architecture, quantization, context
    in tokens, and whether it has a chat template. Raises Unusable.
    """
    parts = parts_of(path)
    headers = [Header(part) for part in parts]
    values = headers[0].values
    kind = str(values.get("general.architecture") or "")
    if not kind:
        raise Unusable(f"{parts[0].name}: general.architecture is missing")
    if kind in OTHERS:
        raise Unusable(f"{path.name}: is {OTHERS[kind]}")
    if kind in ENCODERS or f"{kind}.pooling_type" in values:
        raise Unusable(f"{path.name}: is an embedding model, which is served from its folder in Hugging Face's format")
    if str(values.get("general.type") or "model") != "model":
        raise Unusable(
            f"{path.name}: is no whole model ({str(values['general.type'])[:60]}); merge it into its base model"
        )
    count = values.get("split.count", 1)
    if count not in (0, len(parts)):
        raise Unusable(
            f"{path.name}: is one of {str(count)[:20]} parts, which must keep the names that gguf-split gives"
        )
    for at, header in enumerate(headers if len(parts) > 1 else ()):
        if header.values.get("split.no", at) != at:
            raise Unusable(f"{parts[at].name}: is another part of a model than its name says")
    if not any(header.tensors for header in headers):
        raise Unusable(f"{path.name}: has no tensors")
    context, quantization = values.get(f"{kind}.context_length"), values.get("general.file_type")
    return {
        "architecture": kind[:60],
        "quantization": QUANTIZATIONS.get(quantization, "") if type(quantization) is int else "",
        "context": context if type(context) is int and context > 0 else 0,
        "chat_template": bool(values.get("tokenizer.chat_template")),
        "parts": len(parts),
    }


# --- with the package llama-cpp-python -------------------------------------------------------------------------------
def inspect(path: Path) -> dict:
    """Check a model by loading it and computing a token; return its format, inputs, outputs and what is said of it. Of
    one with more than LOADED_BYTES the vocabulary is loaded. Raises Unusable, and what the library raises.
    """
    about, path = verify(path), parts_of(path)[0]
    small = sum(part.stat().st_size for part in parts_of(path)) <= LOADED_BYTES
    llama = opened(path, n_ctx=64, vocab_only=not small)
    if small:
        llama.eval(llama.tokenize(b"a") or [0])
    llama.close()
    takes, spec = "messages" if about["chat_template"] else "prompt", {"datatype": "BYTES", "shape": [-1]}
    signature = {"inputs": [{"name": takes, **spec}], "outputs": [{"name": "text", **spec}]}
    return {"format": FORMAT, **signature, "about": about}


def opened(path: Path, **options):
    """Return the model in memory. Raises Unusable, and what the library raises."""
    try:
        import llama_cpp
    except ImportError as problem:
        raise Unusable(
            f"the package {problem.name} is missing: name llama-cpp-python in the model's packages (requirements.txt "
            "beside the file), or choose an environment that has it"
        ) from None
    import jinja2

    said: list[str] = []
    opened.listener = _listener(llama_cpp, said)  # llama.cpp keeps its address only
    threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    options |= {"n_threads": threads, "n_threads_batch": threads}
    options["n_gpu_layers"] = -1 if llama_cpp.llama_supports_gpu_offload() else 0
    try:
        return llama_cpp.Llama(str(path), verbose=False, **options)
    except ValueError as problem:
        reason = next((words for words in said if words), str(problem))
        raise Unusable(f"{path.name}: llama.cpp does not load it ({reason[:300]})") from None
    except jinja2.TemplateError as problem:
        raise Unusable(f"{path.name}: its chat template is no valid one ({problem})") from None


def _listener(llama_cpp, said: list[str]):
    """Return what puts the first errors of llama.cpp into a list, and all into the log."""
    import ctypes

    @llama_cpp.llama_log_callback
    def note(level, text, _given):
        words = text.decode(errors="replace").strip()
        if level == ERROR_LEVEL and len(said) < MOST_ERRORS:
            said.append(words)
        if level == ERROR_LEVEL:
            print(words, file=sys.stderr, flush=True)

    llama_cpp.llama_log_set(note, ctypes.c_void_p(0))
    return note
