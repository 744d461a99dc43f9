"""Our adapters in the hands of PEFT, and PEFT's in ours.

Usage: peft_torch_test.py SAMPLE TRAINYARD, where SAMPLE DIR FAMILY [adapter] writes a checkpoint of a small model or of an
adapter of it, and TRAINYARD is the command line. For a Llama and a GPT-2:

1. PEFT loads `export --to peft` on the exported model without a missing or an unexpected tensor, every value as it was.
2. What PEFT saved goes in with `import --base` and out again the same.
3. `merge` of a base and of what PEFT saved gives the logits of the base with the adapter, and the weights of PEFT's
   merge_and_unload, in float32; in bfloat16 every weight is the exact sum, rounded once.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import peft
import torch
import transformers
from safetensors.torch import load_file

SAMPLE, TRAINYARD = sys.argv[1:3]
SEED = 20261130
TARGETS = {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn", "c_proj"]}


def trainyard(*arguments):
    done = subprocess.run([TRAINYARD, "checkpoints", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)


def model_of(family):
    if family == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=4, n_inner=24, vocab_size=40, n_positions=32)
    else:
        config = transformers.LlamaConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
                                          intermediate_size=24, vocab_size=40, max_position_embeddings=32)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def adapted(base, family):
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=TARGETS[family], task_type="CAUSAL_LM", init_lora_weights=False,
                             fan_in_fan_out=family == "gpt2")
    return peft.get_peft_model(base, config).eval()


def loads_ours(root, family):
    for part in ([], ["adapter"]):
        subprocess.run([SAMPLE, root / ("job" + "".join(part)), family, *part], check=True, capture_output=True)
    trainyard("export", root / "job", root / "base", "--to", "huggingface")
    trainyard("export", root / "jobadapter", root / "adapter", "--to", "peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(root / "base")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(base, root / "adapter")
    assert not [w for w in said if "adapter keys" in str(w.message)], [str(w.message) for w in said]
    saved = load_file(root / "adapter" / "adapter_model.safetensors")
    loaded = peft.get_peft_model_state_dict(model)
    assert sorted(saved) == sorted(loaded), set(saved) ^ set(loaded)
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    print(f"{family}: PEFT loads {len(saved)} tensors of ours")


def takes_theirs(root, family):
    base = model_of(family)
    base.save_pretrained(root / "theirs")
    model = adapted(base, family)
    model.save_pretrained(root / "peft")
    trainyard("import", root / "peft", root / "imported", "--base", root / "theirs")
    trainyard("export", root / "imported", root / "again", "--to", "peft")
    before, after = (load_file(root / name / "adapter_model.safetensors") for name in ("peft", "again"))
    assert sorted(before) == sorted(after), set(before) ^ set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    tokens = torch.randint(0, 40, (3, 20))
    with torch.no_grad():
        wanted = model(tokens).logits
        plain = transformers.AutoModelForCausalLM.from_pretrained(root / "theirs").eval()(tokens).logits
    assert (wanted - plain).abs().max() > 1e-3, "a test of nothing"
    for adapter in ("peft", "imported"):
        trainyard("merge", "--base", root / "theirs", "--adapter", root / adapter, "--to", root / f"merged-{adapter}")
        merged = transformers.AutoModelForCausalLM.from_pretrained(root / f"merged-{adapter}").eval()
        with torch.no_grad():
            error = (merged(tokens).logits - wanted).abs().max().item()
        assert error < 1e-5, error
    for name, weight in model.merge_and_unload().state_dict().items():
        torch.testing.assert_close(merged.state_dict()[name], weight, rtol=1e-6, atol=1e-7, msg=name)
    print(f"{family}: a merged model gives the logits of base and adapter, {error:.1e} apart")


def rounds_once(root, family):
    model_of(family).to(torch.bfloat16).save_pretrained(root / "bf16")
    trainyard("merge", "--base", root / "bf16", "--adapter", root / "peft", "--to", root / "merged-bf16")
    before, after = (load_file(root / name / "model.safetensors") for name in ("bf16", "merged-bf16"))
    adapter = load_file(root / "peft" / "adapter_model.safetensors")
    changed = 0
    for name, weight in before.items():
        at = "base_model.model." + name.removesuffix(".weight")
        wanted = weight
        if at + ".lora_A.weight" in adapter:
            delta = 6 / 4 * adapter[at + ".lora_B.weight"].double() @ adapter[at + ".lora_A.weight"].double()
            wanted = weight.double() + (delta.T if family == "gpt2" else delta)
            # Half a unit of the last of 8 bits, and what fp32 leaves open where two numbers are equally near.
            half = torch.ldexp(torch.ones_like(wanted), torch.frexp(wanted).exponent - 9)
            close = (after[name].double() - wanted).abs() <= half * (1 + 2**-10)
            assert close.all(), name
            changed += 1
        else:
            assert torch.equal(after[name], wanted), name
    assert changed == 2 * (3 if family == "gpt2" else len(TARGETS[family])), changed


def main():
    torch.manual_seed(SEED)
    print(f"seed {SEED}, peft {peft.__version__}, transformers {transformers.__version__}")
    for family in TARGETS:
        with tempfile.TemporaryDirectory() as root:
            loads_ours(pathlib.Path(root), family)
            takes_theirs(pathlib.Path(root), family)
            rounds_once(pathlib.Path(root), family)


main()
