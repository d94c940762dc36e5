"""The engine of embedding models by Hugging Face's transformers: texts of similar lengths are computed together."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import torch
from chat_engine import WrongPrompt

BATCH_TEXTS, BATCH_TOKENS = 32, 8192  # that are computed together, with padding
NO_CONTEXT = 1 << 20  # tokens, of a model that does not bound them


class EmbeddingEngine:
    """A model in memory, on the GPU if there is one (see chat_engine.Embedder)."""

    format, parallel, embeds, chats = "transformers", 1, True, False

    def __init__(self, folder: Path, hugging_face):
        embedding = hugging_face.embedding
        self.device, self.pool = "cuda" if torch.cuda.is_available() else "cpu", embedding.pooled
        self.model, self.tokenizer = hugging_face.opened(folder, self.device, embeds=True)
        self.modules = embedding.modules_of(folder)
        self.layers = embedding.layers_of(self.modules, self.device)
        self.context = embedding.context_of(self.model, self.tokenizer, self.modules) or NO_CONTEXT
        self.vocabulary = self.model.get_input_embeddings().weight.shape[0]
        self.dimensions = self.embed([[0]], threading.Event()).shape[1]
        sizes = getattr(self.model.config, "matryoshka_dimensions", None)
        self.sizes = [size for size in sizes if type(size) is int] if isinstance(sizes, list) else []
        self.any_size = getattr(self.model.config, "is_matryoshka", False) is True and not self.sizes

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the model has at its ends."""
        return self.tokenizer.encode(self.modules.prompt + (text.lower() if self.modules.lower else text))

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        """Return tokens that a caller sent."""
        if odd := [token for token in tokens if not 0 <= token < self.vocabulary]:
            raise WrongPrompt(f"{odd[0]} is no token of the model, which has {self.vocabulary}")
        return tokens

    def may_have(self, dimensions: int) -> bool:
        """Return whether the first so many numbers of a vector are one, too: the model was trained so (Matryoshka)."""
        return dimensions in (self.dimensions, *self.sizes) or (self.any_size and dimensions < self.dimensions)

    def embed(self, texts: list[list[int]], cancelled: threading.Event) -> np.ndarray:
        """Return a vector of 32-bit floats for each list of tokens; ends early after `cancelled` is set."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]), reverse=True)
        rows: list = [None] * len(texts)
        while order and not cancelled.is_set():
            size = max(1, min(BATCH_TEXTS, BATCH_TOKENS // max(1, len(texts[order[0]]))))
            batch, order = order[:size], order[size:]
            for at, vector in zip(batch, self._together([texts[at] for at in batch]), strict=True):
                rows[at] = vector
        return np.array([row for row in rows if row is not None], dtype=np.float32)

    def _together(self, texts: list[list[int]]) -> np.ndarray:
        longest, padding = max(map(len, texts)), self.tokenizer.pad_token_id or 0
        ids = [text + [padding] * (longest - len(text)) for text in texts]
        mask = [[1] * len(text) + [0] * (longest - len(text)) for text in texts]
        ids, mask = (torch.tensor(rows, dtype=torch.long, device=self.device) for rows in (ids, mask))
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            vectors = self.pool(hidden, mask, self.modules.pooling)
            for layer in self.layers:
                vectors = layer(vectors)
        return vectors.cpu().numpy()
