"""A server with vLLM's completions (and TGI's `/generate`) on the tiny random model.

llama.cpp's server returns no log-probabilities of a prompt. This server computes them by its own
forward pass over the same weights, and uses llama.cpp only to tokenise.
"""

import asyncio
from pathlib import Path
from typing import Any

import gguf
import httpx2
import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray

from tests.servers.tiny_llama import HEADS, KV_HEADS, LAYERS

Array = NDArray[np.float64]

_EPSILON = 1e-5
_ROPE_BASE = 10_000.0


class TinyModel:
    """Logits of a Llama in a GGUF file, in double precision."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(str(path))
        self._weights: dict[str, Array] = {
            tensor.name: np.array(tensor.data, dtype=np.float64) for tensor in reader.tensors
        }

    def logprobs(self, ids: list[int]) -> Array:
        """Return log-probabilities of the tokens after `ids`, shape (len(ids), n_vocabulary)."""
        w = self._weights
        x = w["token_embd.weight"][ids]
        for layer in range(LAYERS):
            block = f"blk.{layer}."
            h = _normed(x) * w[block + "attn_norm.weight"]
            x = x + self._attention(h, block)
            h = _normed(x) * w[block + "ffn_norm.weight"]
            gate = h @ w[block + "ffn_gate.weight"].T
            up = h @ w[block + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[block + "ffn_down.weight"].T
        logits = (_normed(x) * w["output_norm.weight"]) @ w["output.weight"].T
        logits -= logits.max(axis=-1, keepdims=True)
        found: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return found

    def _attention(self, h: Array, block: str) -> Array:
        n = len(h)
        q = _rotated((h @ self._weights[block + "attn_q.weight"].T).reshape(n, HEADS, -1))
        k = _rotated((h @ self._weights[block + "attn_k.weight"].T).reshape(n, KV_HEADS, -1))
        v = (h @ self._weights[block + "attn_v.weight"].T).reshape(n, KV_HEADS, -1)
        k, v = (np.repeat(each, HEADS // KV_HEADS, axis=1) for each in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
        return np.asarray(mixed @ self._weights[block + "attn_output.weight"].T)


def _normed(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + _EPSILON))


def _rotated(x: Array) -> Array:
    """Apply rotary positions to pairs of neighbours, as llama.cpp does for this architecture."""
    n, _, width = x.shape
    angles = np.arange(n)[:, None] * _ROPE_BASE ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned


class EchoLlama:
    """The ASGI application.

    Args:
        model: Computes log-probabilities.
        llama_url: llama.cpp's server on the same model, used to tokenise.
        key: API key of that server.
    """

    def __init__(self, model: TinyModel, llama_url: str, key: str) -> None:
        self._model = model
        self._llama = httpx2.Client(
            base_url=llama_url, headers={"authorization": f"Bearer {key}"}, timeout=60.0
        )
        self.app = FastAPI()
        self.app.post("/{behaviour}/v1/completions")(self._completions)
        self.app.post("/{behaviour}/generate")(self._generate)
        #: Request bodies as received.
        self.calls: list[dict[str, Any]] = []

    def close(self) -> None:
        """Close the client."""
        self._llama.close()

    async def _tokens(self, text: str) -> tuple[list[int], list[str]]:
        """Return ids and texts; part of a character appears as in vLLM and TGI."""
        reply = await asyncio.to_thread(
            self._llama.post, "/tokenize", json={"content": text, "with_pieces": True}
        )
        found = reply.raise_for_status().json()["tokens"]
        pieces = [token["piece"] if isinstance(token["piece"], str) else "�" for token in found]
        return [token["id"] for token in found], pieces

    async def _prompt(self, text: str) -> tuple[list[int], list[str], list[float | None], str]:
        """Return ids, texts and log-probabilities of a prompt, and the likeliest next token."""
        ids, pieces = await self._tokens(text)
        logprobs = self._model.logprobs(ids)
        given = [None, *(float(logprobs[at, token]) for at, token in enumerate(ids[1:]))]
        return ids, pieces, given, "a"

    async def _completions(self, behaviour: str, request: Request) -> Response:
        body = await request.json()
        self.calls.append(dict(body))
        asked = {"echo", "prompt_logprobs"} & body.keys()
        if behaviour == "refuses" and asked:
            words = f"{', '.join(sorted(asked))} with logprobs: extra fields not permitted"
            return JSONResponse({"error": {"message": words, "code": 400}}, 400)
        if behaviour == "no_echo" and "echo" in asked:
            return JSONResponse({"error": {"message": "echo is not supported", "code": 400}}, 400)
        if behaviour == "vllm_only":  # knows only its own field, and ignores unknown ones
            body.pop("echo", None)
        if behaviour == "ignores":
            body.pop("echo", None)
            body.pop("prompt_logprobs", None)
        text = body["prompt"]
        ids, pieces, given, written = await self._prompt(text)
        echo = bool(body.get("echo"))
        tokens = [*pieces, written] if echo else [written]
        offsets = np.cumsum([0, *map(len, tokens)])[:-1].tolist()
        choice = {
            "index": 0,
            "text": text + written if echo else written,
            "finish_reason": "length",
            "logprobs": {
                "tokens": tokens,
                "token_logprobs": [*given, -0.5] if echo else [-0.5],
                "text_offset": offsets,
                "top_logprobs": None,
            }
            if body.get("logprobs") is not None
            else None,
            "prompt_logprobs": [
                None if logprob is None else {str(token): _entry(logprob, piece)}
                for token, piece, logprob in zip(ids, pieces, given, strict=True)
            ]
            if body.get("prompt_logprobs") is not None
            else None,
        }
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        return JSONResponse(
            {"object": "text_completion", "model": "tiny", "choices": [choice], "usage": usage}
        )

    async def _generate(self, request: Request, behaviour: str) -> Response:
        body = await request.json()
        self.calls.append(dict(body))
        ids, pieces, given, written = await self._prompt(body["inputs"])
        wanted = body["parameters"].get("decoder_input_details") and behaviour != "ignores"
        details = {
            "finish_reason": "length",
            "generated_tokens": 1,
            "prefill": [
                {"id": token, "text": piece, "logprob": logprob}
                for token, piece, logprob in zip(ids, pieces, given, strict=True)
            ]
            if wanted
            else [],
            "tokens": [{"id": 5, "text": written, "logprob": -0.5, "special": False}],
        }
        return JSONResponse(
            {"generated_text": written, "details": details},
            headers={"x-prompt-tokens": str(len(ids)), "x-generated-tokens": "1"},
        )


def _entry(logprob: float, piece: str) -> dict[str, Any]:
    return {"logprob": logprob, "rank": 1, "decoded_token": piece}
