"""A server with vLLM's completions (and TGI's `/generate`) on the tiny random model.

llama.cpp's server returns no log-probabilities of a prompt. This server asks it for what follows
each beginning of the prompt, with the log-probabilities of all tokens.
"""

import asyncio
from typing import Any

import httpx2
import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response


class EchoLlama:
    """The ASGI application, before llama.cpp's server with its API key."""

    def __init__(self, llama_url: str, key: str) -> None:
        self._llama = httpx2.Client(
            base_url=llama_url, headers={"authorization": f"Bearer {key}"}, timeout=60.0
        )
        #: What follows a prompt: tokens with their log-probabilities.
        self._following: dict[tuple[int, ...], dict[int, float]] = {}
        self.app = FastAPI()
        self.app.post("/{behaviour}/v1/completions")(self._completions)
        self.app.post("/{behaviour}/generate")(self._generate)
        #: Request bodies as received.
        self.calls: list[dict[str, Any]] = []

    def close(self) -> None:
        """Close the client."""
        self._llama.close()

    def _post(self, route: str, body: dict[str, Any]) -> Any:
        return self._llama.post(route, json=body).raise_for_status().json()

    def tokens(self, text: str) -> list[tuple[int, str | list[int]]]:
        """Return ids and texts of the tokens; a part of a character is a list of bytes."""
        found = self._post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
        return [(token["id"], token["piece"]) for token in found]

    def logprobs(self, ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first, after those before it."""
        prompts = [ids[:at] for at in range(1, len(ids))]
        new = [prompt for prompt in prompts if tuple(prompt) not in self._following]
        # The output is forced, so that an end token leaves no empty answer; log-probabilities are
        # those before the forcing.
        body = {"prompt": new, "n_predict": 1, "n_probs": 4096, "logit_bias": [[102, 99]]}
        found = self._post("/completion", body) if new else []
        for told in found if isinstance(found, list) else [found]:
            (one,) = told["completion_probabilities"]
            after = {each["id"]: each["logprob"] for each in one["top_logprobs"]}
            self._following[tuple(new[told["index"]])] = after
        return [self._following[tuple(ids[:at])][ids[at]] for at in range(1, len(ids))]

    async def _prompt(self, text: str) -> tuple[list[int], list[str], list[float | None], str]:
        """Return ids, texts and log-probabilities of a prompt, and a written token.

        Part of a character is shown as by vLLM and TGI.
        """
        found = await asyncio.to_thread(self.tokens, text)
        ids = [token for token, _ in found]
        pieces = [piece if isinstance(piece, str) else "�" for _, piece in found]
        return ids, pieces, [None, *await asyncio.to_thread(self.logprobs, ids)], "a"

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
