"""See tokenize.sh. What is measured is processor time, so that one core is one core whatever else the machine does: of our
program all of it less what it takes to start and load the tokenizer, of Python that of reading, encoding and writing."""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/python"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy  # noqa: E402
import report  # noqa: E402
import sentencepiece  # noqa: E402
import tokenize_texts as texts  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

TARGET = 0.9


def ours(program, tokenizer, source, out, threads=1):
    """Processor seconds, and what the program says itself."""
    before = os.times()
    done = subprocess.run([program, "data", "tokenize", "--tokenizer", tokenizer, "--format", "jsonl", "--input", source,
                           "--output", out, "--separator", "none", "--threads", str(threads), "--json"],
                          capture_output=True, text=True, check=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, json.loads(done.stdout)


def theirs(encode, source, out):
    start = time.process_time()
    documents = [json.loads(line)["text"] for line in open(source, encoding="utf-8")]
    ids = encode(documents)
    numpy.concatenate([numpy.asarray(i, dtype=numpy.uint16) for i in ids]).tofile(out)
    return time.process_time() - start


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--program", required=True)
    flags.add_argument("--json", type=pathlib.Path)
    flags.add_argument("--pairs", type=int, default=7)
    flags.add_argument("--seed", type=int, default=random.randrange(2**32))
    flags = flags.parse_args()
    print(f"seed {flags.seed}")
    rng = random.Random(flags.seed)
    prose, code = texts.bible(), texts.code()
    corpus = [prose, code]
    documents = [texts.pieces(rng, rng.choice(corpus), rng.randrange(500, 8000)) for _ in range(2500)]
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        source, tiny, out = place / "documents.jsonl", place / "tiny.jsonl", place / "out.bin"
        source.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
        tiny.write_text('{"text": "a"}\n')
        megabytes = sum(len(d.encode()) for d in documents) / 1e6
        kinds = []
        for name, make in (("byte_level_bpe", texts.gpt2), ("llama3_bpe", texts.llama3)):
            path = place / name
            path.mkdir()
            make(corpus, 16000).save(str(path / "tokenizer.json"))
            tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
            kinds.append((name, path, "python_tokenizers", lambda d, t=tokenizer: [
                e.ids for e in t.encode_batch_fast(d, add_special_tokens=False)]))
        lines = [line for text in corpus for line in text.splitlines()]
        model = texts.sentence_piece(place / "sentencepiece", lines, "unigram", 4000)
        kinds.append(("sentencepiece_unigram", place / "sentencepiece", "python_sentencepiece",
                      lambda d, m=model: [m.encode(x) for x in d]))
        rows = []
        for name, path, baseline, encode in kinds:
            load = statistics.median(ours(flags.program, path, tiny, out)[0] for _ in range(3))
            measured, base = [], []
            for _ in range(flags.pairs):
                measured.append(megabytes / (ours(flags.program, path, source, out)[0] - load))
                base.append(megabytes / theirs(encode, source, place / "theirs.bin"))
            rows.append(report.row(f"tokenize_{name}_one_core", measured, base, "MB/s", baseline, TARGET))
    report.table(rows)
    if flags.json:
        report.write(flags.json, rows)


main()
