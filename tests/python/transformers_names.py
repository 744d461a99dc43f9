"""Writes tests/python/transformers_names/: the tensors that transformers itself saves for a small model of each family.

    $(bash tests/bench/engine/setup.sh)/bin/python3 tests/python/transformers_names.py

A line is a name and its shape. Run it when the version of transformers in tests/bench/engine/setup.sh changes.
"""
import pathlib
import tempfile

import transformers
from safetensors import safe_open

HERE = pathlib.Path(__file__).parent / "transformers_names"


def llama(tied):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
        vocab_size=40, max_position_embeddings=32, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None))


def relative(name, tied, **more):
    return getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
        vocab_size=40, max_position_embeddings=32, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, **more))


def mistral(tied):
    return relative("Mistral", tied)


def qwen2(tied):
    return relative("Qwen2", tied)


def qwen3(tied):
    return relative("Qwen3", tied, head_dim=8, attention_bias=tied)


def gpt2(tied):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=4, n_inner=24, vocab_size=40, n_positions=32, tie_word_embeddings=tied,
        bos_token_id=None, eos_token_id=None))


def main():
    HERE.mkdir(exist_ok=True)
    for make in (llama, mistral, qwen2, qwen3, gpt2):
        for tied in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                make(tied).save_pretrained(directory)
                with safe_open(f"{directory}/model.safetensors", framework="pt") as saved:
                    lines = [f"{name} {' '.join(map(str, saved.get_slice(name).get_shape()))}" for name in saved.keys()]
            name = f"{make.__name__}{'_tied' if tied else ''}.txt"
            (HERE / name).write_text("\n".join(sorted(lines)) + "\n")


main()
