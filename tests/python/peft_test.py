"""Opens adapters that we export with the safetensors package: PEFT's names, shapes and configuration, and every value.

Usage: peft_test.py SAMPLE TRAINYARD, where SAMPLE DIR FAMILY adapter writes a checkpoint of an adapter of rank 4 for all
matrices of a small model and prints, per tensor, its name, its shape, and the first element before it is taken modulo
8388593, as JSON; TRAINYARD is the command line.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open

# (module, in, out) of a block: hidden 16, 4 heads of which 2 have keys and values, MLP of 24.
BLOCKS = {
    "llama": ("base_model.model.model.layers.{}.", [
        ("self_attn.q_proj", 16, 16), ("self_attn.k_proj", 16, 8), ("self_attn.v_proj", 16, 8), ("self_attn.o_proj", 16, 16),
        ("mlp.gate_proj", 16, 24), ("mlp.up_proj", 16, 24), ("mlp.down_proj", 24, 16)]),
    "gpt2": ("base_model.model.transformer.h.{}.", [
        ("attn.c_attn", 16, 48), ("attn.c_proj", 16, 16), ("mlp.c_fc", 16, 24), ("mlp.c_proj", 24, 16)]),
}


def main():
    sample, trainyard = sys.argv[1:3]
    for family, (prefix, modules) in BLOCKS.items():
        with tempfile.TemporaryDirectory() as root:
            job, out = os.path.join(root, "job"), os.path.join(root, "out")
            made = subprocess.run([sample, job, family, "adapter"], check=True, capture_output=True, text=True).stdout
            subprocess.run([trainyard, "checkpoints", "export", job, out, "--to", "peft"], check=True)
            assert sorted(os.listdir(out)) == ["adapter_config.json", "adapter_model.safetensors"], os.listdir(out)
            wanted = {}
            for layer in range(2):
                for module, features_in, features_out in modules:
                    at = prefix.format(layer) + module
                    wanted[at + ".lora_A.weight"] = (4, features_in)
                    wanted[at + ".lora_B.weight"] = (features_out, 4)
            first = {"base_model.model." + t["name"]: t["base"] for t in json.loads(made)}
            with safe_open(os.path.join(out, "adapter_model.safetensors"), framework="numpy") as file:
                assert file.metadata() == {"format": "pt"}, file.metadata()
                assert sorted(file.keys()) == sorted(wanted), set(file.keys()) ^ set(wanted)
                for name, shape in wanted.items():
                    tensor = file.get_tensor(name)
                    assert tensor.shape == shape and tensor.dtype == np.float32, (name, tensor.shape, tensor.dtype)
                    index = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
                    values = (index * np.uint64(2654435761) + np.uint64(first[name])) % np.uint64(8388593)
                    assert np.array_equal(tensor, values.astype(np.float32)), name
            with open(os.path.join(out, "adapter_config.json")) as file:
                config = json.load(file)
            expected = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "lora_dropout": 0.1,
                        "bias": "none", "fan_in_fan_out": family == "gpt2", "base_model_name_or_path": None,
                        "target_modules": sorted({m.split(".")[-1] for m, _, _ in modules})}
            assert {k: config[k] for k in expected} == expected, config
            print(f"{family}: {len(wanted)} tensors under PEFT's names")


main()
