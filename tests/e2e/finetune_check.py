"""What docs/examples/finetune.sh left, held against a computation of its own: NumPy's Llama, the model's own Jinja template
and the tokenizers package give the loss of the held-out answers, for the published weights, with the adapter beside them and
with the adapter merged into them.
usage: finetune_check.py DIRECTORY"""
import json
import math
import pathlib
import sys

import jinja2.sandbox
import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SEQUENCE, SEQUENCES = 128, 8  # of finetune.yaml: sequenceLength, and evaluation.batches of microBatchSize
ROOT = pathlib.Path(sys.argv[1])


def load(directory):
    """config.json, and all weights as float32."""
    data = (directory / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    weights = {}
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        assert info["dtype"] == "BF16", name
        bits = numpy.frombuffer(data, "<u2", (end - begin) // 2, 8 + size + begin).astype("<u4") << 16
        weights[name] = bits.view("<f4").reshape(info["shape"])
    return json.loads((directory / "config.json").read_text()), weights


def with_adapter(weights, directory):
    """W + alpha / rank * B A, as PEFT has it."""
    scale = (lambda config: config["lora_alpha"] / config["r"])(json.loads((directory / "adapter_config.json").read_text()))
    adapter = load_file(directory / "adapter_model.safetensors")
    names = [name[len("base_model.model."):-len(".lora_A.weight")] for name in adapter if name.endswith(".lora_A.weight")]
    assert 2 * len(names) == len(adapter) and len(names) == 7 * 30, "an adapter beside each matrix of each block"
    added = {f"{n}.weight": scale * adapter[f"base_model.model.{n}.lora_B.weight"] @ adapter[f"base_model.model.{n}.lora_A.weight"]
             for n in names}
    return weights | {name: weights[name] + delta for name, delta in added.items()}


def norm(x, weight, epsilon):
    return x / numpy.sqrt(numpy.mean(x * x, -1, keepdims=True) + epsilon) * weight


def rotate(x, positions, theta):
    """x: [tokens, heads, size]."""
    half = x.shape[-1] // 2
    angles = positions[:, None] / theta ** (numpy.arange(half) / half)
    cos, sin = numpy.cos(angles)[:, None].astype("f4"), numpy.sin(angles)[:, None].astype("f4")
    return numpy.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


def attention(q, k, v):
    """Of one conversation: [tokens, heads, size]."""
    scores = numpy.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores + numpy.triu(numpy.full(scores.shape[1:], -numpy.inf, "f4"), 1)
    e = numpy.exp(scores - scores.max(-1, keepdims=True))
    return numpy.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v)


def log_likelihoods(config, weights, chats):
    """Of each token of each conversation but its first, given those before it."""
    heads, kv_heads, epsilon = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    cuts = numpy.cumsum([len(ids) - 1 for ids in chats])[:-1]
    positions = numpy.concatenate([numpy.arange(len(ids) - 1) for ids in chats])
    targets = numpy.concatenate([ids[1:] for ids in chats])
    x = weights["model.embed_tokens.weight"][numpy.concatenate([ids[:-1] for ids in chats])]
    n = len(x)
    for layer in range(config["num_hidden_layers"]):
        w = lambda name: weights[f"model.layers.{layer}.{name}.weight"]
        h = norm(x, w("input_layernorm"), epsilon)
        q, k, v = (h @ w(f"self_attn.{p}_proj").T for p in "qkv")
        q = rotate(q.reshape(n, heads, -1), positions, config["rope_theta"])
        k = rotate(k.reshape(n, kv_heads, -1), positions, config["rope_theta"]).repeat(heads // kv_heads, 1)
        v = v.reshape(n, kv_heads, -1).repeat(heads // kv_heads, 1)
        each = [attention(*parts) for parts in zip(*(numpy.split(t, cuts) for t in (q, k, v)))]
        x = x + numpy.concatenate(each).reshape(n, -1) @ w("self_attn.o_proj").T
        h = norm(x, w("post_attention_layernorm"), epsilon)
        gate = h @ w("mlp.gate_proj").T
        x = x + (gate / (1 + numpy.exp(-gate)) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    logits = norm(x, weights["model.norm.weight"], epsilon) @ weights["model.embed_tokens.weight"].T
    logits -= logits.max(-1, keepdims=True)
    return numpy.split(logits[numpy.arange(n), targets] - numpy.log(numpy.exp(logits).sum(-1)), cuts)


def held_out(model):
    """The conversations in the sequences that an evaluation reads: (tokens, which of them are to be learned)."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    template = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    render = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(template).render
    chats, used, sequences = [], 0, 1
    for line in (ROOT / "held-out.jsonl").read_text().splitlines():
        question, answer = json.loads(line)["messages"]
        whole = tokenizer.encode(render(messages=[question, answer]), add_special_tokens=False).ids
        asked = tokenizer.encode(render(messages=[question], add_generation_prompt=True), add_special_tokens=False).ids
        assert whole[:len(asked)] == asked
        if used + len(whole) + 1 > SEQUENCE:  # with the token that parts it from the next
            used, sequences = 0, sequences + 1
        if sequences > SEQUENCES:
            return chats
        used += len(whole) + 1
        # The answer and <|im_end|>, and not the line break behind it.
        chats.append((numpy.array(whole), range(len(asked), len(whole) - 1)))
    raise AssertionError("fewer conversations than an evaluation reads")


def loss(config, weights, chats):
    """Mean over the tokens of answers, mean over all tokens, and how many are of answers."""
    everything = log_likelihoods(config, weights, [ids for ids, _ in chats])
    learned = numpy.concatenate([each[numpy.array(answer) - 1] for each, (_, answer) in zip(everything, chats)])
    return -float(learned.mean()), -float(numpy.concatenate(everything).mean()), len(learned)


def main():
    models = ROOT / "volumes/models"
    progress = json.loads((ROOT / "jobs/default/finetune.json").read_text())["status"]["progress"]
    base = models / "smollm2-135m-instruct"
    chats = held_out(base)
    config, weights = load(base)
    before, of_all, tokens = loss(config, weights, chats)
    after, _, _ = loss(config, with_adapter(weights, models / "dictionary-adapter"), chats)
    merged, _, _ = loss(*load(models / "smollm2-135m-dictionary"), chats)
    print(f"{tokens} tokens of {len(chats)} held-out answers: NumPy {before:.5f} -> {after:.5f}, merged {merged:.5f}; "
          f"the job {progress['initialValidationLoss']:.5f} -> {progress['validationLoss']:.5f}; with the questions {of_all:.5f}")
    assert abs(before - of_all) > 0.1, "answers alone cannot be told from whole conversations here"
    assert abs(progress["initialValidationLoss"] - before) < 1e-4 * before, "the job's loss before is another one"
    assert abs(progress["validationLoss"] - after) < 1e-4 * after, "the adapter is not what the job has trained"
    # Merged weights are rounded to BF16, which is more than some of them were moved by.
    assert abs(merged - after) < 2e-2 * after, "the merged model is not the base with the adapter"
    assert after < before - 0.8, "the held-out loss did not fall as it should"


main()
