"""See generate.sh. Tokens per second of one prompt, its own time included and the reading of weights left out, ours and
transformers' by turns."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import report  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

TARGET = 1.0
PROMPT = "The quick brown fox jumps over t"  # 32 bytes, which are 32 tokens


def write_model(directory, dtype, seed):
    """The shape of SmolLM-135M with random weights: what a token costs does not depend on them."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        num_hidden_layers=30, hidden_size=576, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536,
        vocab_size=49152, max_position_embeddings=2048, tie_word_embeddings=True, rope_theta=10000.0)
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    model.save_pretrained(directory)
    return model


def ours(flags, directory, precision):
    done = subprocess.run([flags.program, "generate", "--model", directory, "--tokenizer", "bytes", "--prompt", PROMPT,
                           "--tokens", str(flags.tokens), "--ignore-end", "--precision", precision, "--threads",
                           str(flags.threads), "-o", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"generate_speed.py: {done.stderr}")
    answer = json.loads(done.stdout)
    assert len(answer["tokens"]) == flags.tokens and answer["promptTokens"] == len(PROMPT)
    return flags.tokens / (answer["promptSeconds"] + answer["seconds"]), answer["tokens"]


def theirs(flags, model):
    prompt = torch.tensor([list(PROMPT.encode())])
    with torch.inference_mode():
        begin = time.perf_counter()
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, eos_token_id=None,
                              pad_token_id=0, max_new_tokens=flags.tokens, min_new_tokens=flags.tokens)
        seconds = time.perf_counter() - begin
    tokens = made[0, len(PROMPT):].tolist()
    assert len(tokens) == flags.tokens
    return flags.tokens / seconds, tokens


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--program", required=True)
    flags.add_argument("--json", type=pathlib.Path)
    flags.add_argument("--pairs", type=int, default=7)
    flags.add_argument("--threads", type=int, default=os.cpu_count())
    flags.add_argument("--tokens", type=int, default=128)
    flags.add_argument("--seed", type=int, default=1)
    flags = flags.parse_args()
    torch.set_num_threads(flags.threads)
    print(f"seed {flags.seed}, {flags.threads} threads, transformers {transformers.__version__}, torch {torch.__version__}")
    rows = []
    for name, dtype, precision in (("fp32", torch.float32, "FP32"), ("bf16", torch.bfloat16, "BF16")):
        with tempfile.TemporaryDirectory() as directory:
            model = write_model(directory, dtype, flags.seed)
            same = next((i for i, (a, b) in enumerate(zip(ours(flags, directory, precision)[1], theirs(flags, model)[1]))
                         if a != b), flags.tokens)  # also warms both up
            print(f"{name}: the first {same} of {flags.tokens} tokens are the same")
            measured, base = [], []
            for _ in range(flags.pairs):
                measured.append(ours(flags, directory, precision)[0])
                base.append(theirs(flags, model)[0])
            rows.append(report.row(f"generate_135m_{name}", measured, base, "tokens/s", "transformers", TARGET))
    report.table(rows)
    if flags.json:
        report.write(flags.json, rows)


main()
