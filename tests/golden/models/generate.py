#!/usr/bin/env python3
"""Logits, loss, gradients and greedy tokens of Hugging Face's models, for tests/trainer/model/golden_test.cpp and
tests/trainer/generate/greedy_test.cpp.

    python3 -m venv ENV
    ENV/bin/pip install torch==2.11.0 transformers==4.57.1 safetensors numpy
    ENV/bin/python tests/golden/models/generate.py            writes CASE.safetensors and greedy.json beside this file
    ENV/bin/python tests/golden/models/generate.py --check    compares with what is there

A file holds `tokens` [b, s+1]; `p.NAME`, every parameter as 64ths in int8; `logits` [b, s, vocabulary] of tokens[:, :-1];
`loss`, the sum over all targets of their cross-entropy; and `g.NAME`, its gradients. Metadata: `config` of the model as
transformers has it, and `versions`. All in float32 with eager attention on one thread.

greedy.json has of each case, and of each row of `tokens`, the tokens that generate() makes of the first four until all 12
positions are used.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
PINNED = {"torch": "2.11.0", "transformers": "4.57.1"}


def llama(**more):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, intermediate_size=24, vocab_size=31,
        max_position_embeddings=12, attn_implementation="eager", **more)


def relative(name, **more):
    """A decoder like Llama's, with its own window, biases or norms; 12 positions, of which a window of 3 or 4 sees few."""
    return getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}Config")(**({
        "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "vocab_size": 31, "max_position_embeddings": 12, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "attn_implementation": "eager"} | more))


def gpt2(**more):
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=4, vocab_size=31, n_positions=12, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
        attn_implementation="eager", **more)


CASES = {
    "llama_grouped_queries": llama(num_key_value_heads=2, rope_theta=500000.0, rms_norm_eps=1e-5,
                                   tie_word_embeddings=False),
    "llama_one_key_head_tied": llama(num_key_value_heads=1, rope_theta=1000.0, rms_norm_eps=1e-6,
                                     tie_word_embeddings=True),
    "llama_tied": llama(num_key_value_heads=4, rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=True),
    # 4 pairs of each head: with these limits some frequencies stay, some are interpolated, some are divided.
    "llama_rope_linear": llama(num_key_value_heads=2, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama_rope_llama3_head_size": llama(
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, rope_theta=50.0,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 40}),
    "llama_rope_yarn": llama(
        num_key_value_heads=2, head_dim=8, rope_theta=50.0,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40, "beta_fast": 4.0}),
    "llama_rope_yarn_mscale": llama(
        num_key_value_heads=2, head_dim=8, rope_theta=50.0,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40, "beta_fast": 4.0,
                      "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}),
    "llama_attention_bias": llama(num_key_value_heads=2, attention_bias=True),
    "mistral_window": relative("Mistral", sliding_window=3),
    "mistral_head_size": relative("Mistral", sliding_window=None, head_dim=8, rope_theta=1000.0),
    "qwen2_tied": relative("Qwen2", tie_word_embeddings=True, rope_theta=1000000.0),
    "qwen2_window_in_upper_layers": relative("Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": relative("Qwen3", head_dim=8, rope_theta=1000000.0),
    "qwen3_bias_window_yarn": relative(
        "Qwen3", head_dim=8, attention_bias=True, tie_word_embeddings=True, use_sliding_window=True, sliding_window=4,
        max_window_layers=0, rope_theta=50.0,
        rope_scaling={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 40, "beta_fast": 4.0}),
    "gpt2_tied": gpt2(),
    "gpt2_untied": gpt2(n_inner=40, tie_word_embeddings=False),
}
PROMPT, POSITIONS = 4, 12


def make(name):
    model_class, config = CASES[name]
    config.architectures = [model_class.__name__]
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = model_class(config).eval()
    tensors = {}
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():  # a tied weight comes once
            mean = 64 if parameter_name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0
            sixtyfourths = torch.randint(mean - 40, mean + 41, parameter.shape, generator=generator, dtype=torch.int8)
            parameter.copy_(sixtyfourths.float() / 64)
            tensors["p." + parameter_name] = sixtyfourths
    tokens = torch.randint(0, config.vocab_size, (3, 10), generator=generator)
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    loss.backward()
    tensors |= {"g." + n: p.grad for n, p in model.named_parameters()}
    tensors |= {"tokens": tokens, "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    # As save_pretrained writes it: the test reads it as an import does.
    with torch.no_grad():
        made = model.generate(tokens[:, :PROMPT], attention_mask=torch.ones_like(tokens[:, :PROMPT]), do_sample=False,
                              max_new_tokens=POSITIONS - PROMPT, eos_token_id=None, pad_token_id=0)
    config_keys = json.loads(config.to_json_string(use_diff=False))
    return ({k: v.contiguous() for k, v in tensors.items()},
            {"config": json.dumps(config_keys, sort_keys=True), "versions": json.dumps(PINNED, sort_keys=True)},
            made[:, PROMPT:].tolist())


def main():
    found = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    if found != PINNED:
        sys.exit(f"generate.py: found {found}, pinned are {PINNED}")
    torch.set_num_threads(1)
    greedy = {}
    for name in CASES:
        tensors, metadata, greedy[name] = make(name)
        path = HERE / f"{name}.safetensors"
        if "--check" not in sys.argv[1:]:
            save_file(tensors, path, metadata)
            continue
        with safe_open(path, "pt") as f:
            if f.metadata() != metadata or set(f.keys()) != set(tensors):
                sys.exit(f"{path.name}: other metadata or tensors than made now")
            for key, tensor in tensors.items():
                if not torch.allclose(f.get_tensor(key).double(), tensor.double(), rtol=1e-5, atol=1e-5):
                    sys.exit(f"{path.name}: {key} differs from what is made now")
        print(f"{path.name}: as committed")
    text = json.dumps(greedy).replace("]], ", "]],\n ") + "\n"
    path = HERE / "greedy.json"
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path.name} differs from what is made now")


if __name__ == "__main__":
    main()
