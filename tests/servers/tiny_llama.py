"""The real llama.cpp server on a tiny random model that is made at the start.

    python -m tests.servers.tiny_llama KEY

prints `{"url": "http://127.0.0.1:PORT"}` and serves until it is stopped. What the model writes is
noise; everything around it (routes, errors, usage, log-probabilities) is the real thing.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

from tests.servers import free_port

EMBEDDING, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 128, 2, 4, 2, 2048
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ A", "Ġ B", "Ġ C", "Ġ D", "t h", "th e")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_alphabet() -> list[str]:
    """Return GPT-2's printable stand-in for each of the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(b if b in printable else 256 + hidden.index(b)) for b in range(256)]


def write_model(path: Path) -> None:
    """Write a Llama of about 0.5 MB with random weights."""
    rng = np.random.default_rng(0)
    tokens = [*SPECIAL, *_byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    kinds = [
        gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens
    ]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_merges(list(MERGES))
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(4)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    def add_random(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * 0.1).astype(np.float32))

    def add_ones(name: str) -> None:
        writer.add_tensor(name, np.ones(EMBEDDING, np.float32))

    add_random("token_embd.weight", len(tokens), EMBEDDING)
    add_ones("output_norm.weight")
    add_random("output.weight", len(tokens), EMBEDDING)
    kv_width = EMBEDDING * KV_HEADS // HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        add_ones(block + "attn_norm.weight")
        add_ones(block + "ffn_norm.weight")
        add_random(block + "attn_q.weight", EMBEDDING, EMBEDDING)
        add_random(block + "attn_k.weight", kv_width, EMBEDDING)
        add_random(block + "attn_v.weight", kv_width, EMBEDDING)
        add_random(block + "attn_output.weight", EMBEDDING, EMBEDDING)
        add_random(block + "ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        add_random(block + "ffn_up.weight", FEED_FORWARD, EMBEDDING)
        add_random(block + "ffn_down.weight", EMBEDDING, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Serve until stopped; the argument is the API key."""
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "tiny.gguf"
        write_model(model)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.model_alias = {"tiny"}
        parameters.n_ctx = 4 * CONTEXT
        parameters.n_parallel = 4
        parameters.warmup = False
        parameters.verbosity = 1  # errors only; otherwise ten lines per request
        parameters.cpuparams.n_threads = 1
        parameters.port = free_port()
        parameters.api_keys = sys.argv[1:]
        server = xllamacpp.Server(parameters)
    # The model is mapped into memory by now; its file would outlive a terminated process.
    print(json.dumps({"url": server.listening_address}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
