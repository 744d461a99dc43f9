#!/usr/bin/env python3
"""Logits, loss and gradients of low-rank adapters as PEFT computes them, for tests/trainer/model/adapter_test.cpp.

    python3 -m venv ENV
    ENV/bin/pip install torch==2.11.0 transformers==4.57.1 peft==0.18.0 safetensors numpy
    ENV/bin/python tests/golden/adapters/generate.py            writes CASE.safetensors beside this file
    ENV/bin/python tests/golden/adapters/generate.py --check    compares with what is there

A file holds `tokens` [b, s+1]; `p.NAME`, every parameter of the base, and `a.NAME`, every one of the adapters, as 64ths in
int8; `logits` [b, s, vocabulary] of tokens[:, :-1] with the adapters and `merged` the same after merge_and_unload; `loss`,
the sum over all targets of their cross-entropy; and `g.NAME`, its gradients, which only adapters have. Names of adapters are
PEFT's without its prefix and the adapter's name. In a case with `nf4` the matrices of the blocks go through NF4 first, by
tests/golden/quant/generate.py. Metadata: `config` of the model as transformers has it, `adapter`, and `versions`. All in
float32 with eager attention on one thread, without dropout.
"""
import importlib.util
import json
import pathlib
import sys

import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
PINNED = {"torch": "2.11.0", "transformers": "4.57.1", "peft": "0.18.0"}

spec = importlib.util.spec_from_file_location("nf4", HERE.parent / "quant" / "generate.py")
nf4 = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nf4)


def decoder(name, **more):
    return getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}Config")(**({
        "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 72, "vocab_size": 31, "max_position_embeddings": 12, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "attn_implementation": "eager"} | more))


def gpt2():
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, n_inner=72, vocab_size=31, n_positions=12, embd_pdrop=0.0, attn_pdrop=0.0,
        resid_pdrop=0.0, attn_implementation="eager")


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GPT2 = ["c_attn", "c_proj", "c_fc"]
# model, rank, alpha, targets, nf4
CASES = {
    "llama": (decoder("Llama"), 4, 8.0, ALL, False),
    "llama_nf4": (decoder("Llama"), 4, 12.0, ALL, True),
    "qwen2_some": (decoder("Qwen2", tie_word_embeddings=True), 3, 5.0, ["q_proj", "v_proj", "down_proj"], False),
    "qwen3_one_nf4": (decoder("Qwen3", head_dim=16), 2, 2.0, ["up_proj"], True),
    "gpt2": (gpt2(), 4, 8.0, GPT2, False),
    "gpt2_nf4": (gpt2(), 5, 6.0, ["c_attn", "c_proj"], True),
}


def plain(name):
    return (name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".lora_A.default.", ".lora_A.")
            .replace(".lora_B.default.", ".lora_B."))


def through_nf4(matrix):
    code = torch.tensor(nf4.code_book(), dtype=torch.float32)
    return torch.stack([nf4.pack_row(row, code)[1] for row in matrix])


def make(name):
    (model_class, config), rank, alpha, targets, packed = CASES[name]
    config.architectures = [model_class.__name__]
    generator = torch.Generator().manual_seed(sum(name.encode()))

    def draw(parameter, mean, spread):
        return torch.randint(mean - spread, mean + spread + 1, parameter.shape, generator=generator, dtype=torch.int8)

    model = model_class(config).eval()
    tensors = {}
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():  # a tied weight comes once
            is_norm = parameter_name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
            sixtyfourths = draw(parameter, 64 if is_norm else 0, 20)
            tensors["p." + parameter_name] = sixtyfourths
            values = sixtyfourths.float() / 64
            in_block = ".layers." in parameter_name or ".h." in parameter_name
            parameter.copy_(through_nf4(values) if packed and in_block and values.dim() == 2 else values)
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets, fan_in_fan_out=name.startswith("gpt2"),
        task_type="CAUSAL_LM")).eval()
    with torch.no_grad():
        for parameter_name, parameter in adapted.named_parameters():
            if not parameter.requires_grad:
                continue
            sixtyfourths = draw(parameter, 0, 20)
            tensors["a." + plain(parameter_name)] = sixtyfourths
            parameter.copy_(sixtyfourths.float() / 64)
    tokens = torch.randint(0, config.vocab_size, (3, 10), generator=generator)
    logits = adapted(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    loss.backward()
    tensors |= {"g." + plain(n): p.grad for n, p in adapted.named_parameters() if p.requires_grad}
    with torch.no_grad():
        merged = adapted.merge_and_unload()(tokens[:, :-1]).logits
    tensors |= {"tokens": tokens, "logits": logits.detach(), "merged": merged, "loss": loss.detach().reshape(1)}
    config_keys = json.loads(config.to_json_string(use_diff=False))
    adapter = {"rank": rank, "alpha": alpha, "targets": targets, "nf4": packed}
    return ({k: v.contiguous() for k, v in tensors.items()},
            {"config": json.dumps(config_keys, sort_keys=True), "adapter": json.dumps(adapter, sort_keys=True),
             "versions": json.dumps(PINNED, sort_keys=True)})


def main():
    found = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
             "peft": peft.__version__}
    if found != PINNED:
        sys.exit(f"generate.py: found {found}, pinned are {PINNED}")
    torch.set_num_threads(1)
    for name in CASES:
        tensors, metadata = make(name)
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


if __name__ == "__main__":
    main()
