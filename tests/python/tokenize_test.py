"""`trainyard data tokenize` against the Python packages of the same tokenizers: the same tokens for mixed text and for
conversations. usage: tokenize_test.py TRAINYARD [SEED]"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import jinja2.sandbox
import numpy
from tokenizers import Tokenizer

import tokenize_templates
import tokenize_texts as texts

PROGRAM = sys.argv[1]
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
VOCAB = 3000


def tokenize(*arguments):
    done = subprocess.run([PROGRAM, "data", "tokenize", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def read(path):
    """Tokens and, where there are some, target bits."""
    data = path.read_bytes()
    width, tokens = int.from_bytes(data[12:16], "little"), int.from_bytes(data[16:24], "little")
    assert data[:8] == b"TYTOKEN1" and data[8] == 2
    ids = numpy.frombuffer(data, f"<u{width}", tokens, 64)
    bits = numpy.unpackbits(numpy.frombuffer(data, "u1", offset=64 + width * tokens), bitorder="little")[:tokens]
    return ids.tolist(), bits.tolist()


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}", flush=True)
        cls.place = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.place.name)
        cls.text = texts.mixed(SEED)
        assert 900_000 < len(cls.text.encode()) <= 1_000_000
        rng = random.Random(SEED)
        cls.corpus = [texts.bible()[:700_000], texts.code()[:700_000], texts.odd(rng, 100_000)]

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def check(self, tokenizer, encode, name, whole=True):
        """A text of many blocks, which are encoded apart, texts of one block, and each line as a document of its own."""
        text = self.text
        out = self.dir / "out.bin"
        parts = [self.dir / f"part-{i}.txt" for i in range(10)]
        for i, part in enumerate(parts):
            part.write_bytes(text[i * len(text) // 10:(i + 1) * len(text) // 10].encode())
        for files in ([parts] if not whole else [parts, [self.dir / "text.txt"]]):
            self.dir.joinpath("text.txt").write_bytes((text * 2).encode())
            tokenize("--tokenizer", tokenizer, "--format", "text", "--input", *files, "--output", out, "--separator", "none")
            self.assertSame(read(out)[0], [i for f in files for i in encode(f.read_bytes().decode())], f"{name}, {len(files)} files")
        source = self.dir / "lines.jsonl"
        lines = text.splitlines(keepends=True)
        source.write_text("".join(json.dumps({"text": line}, ensure_ascii=i % 2 == 0) + "\n" for i, line in enumerate(lines)))
        tokenize("--tokenizer", tokenizer, "--format", "jsonl", "--input", source, "--output", out, "--separator", "none",
                 "--threads", 3)
        self.assertSame(read(out)[0], [i for line in lines for i in encode(line)], name + " by lines")

    def assertSame(self, ours, theirs, name):
        if ours == theirs:
            return
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.fail(f"seed {SEED}, {name}: token {at} of {len(ours)} and {len(theirs)}: {ours[at:at + 8]} for {theirs[at:at + 8]}")

    def hugging_face(self, tokenizer, name):
        path = self.dir / name
        path.mkdir()
        tokenizer.save(str(path / "tokenizer.json"))
        reread = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.check(path, lambda text: reread.encode(text, add_special_tokens=False).ids, name)

    def test_byte_level_bpe(self):
        self.hugging_face(texts.gpt2(self.corpus, VOCAB), "gpt2")

    def test_byte_level_bpe_with_a_split_of_its_own(self):
        self.hugging_face(texts.llama3(self.corpus, VOCAB), "llama3")

    def test_metaspace_bpe_with_byte_fallback(self):
        self.hugging_face(texts.metaspace(self.corpus, VOCAB), "metaspace")

    def test_word_piece(self):
        self.hugging_face(texts.wordpiece(self.corpus, VOCAB), "wordpiece")

    def test_sentence_piece(self):
        lines = [line for text in self.corpus for line in text.splitlines()]
        for kind in ("unigram", "bpe"):
            model = texts.sentence_piece(self.dir / kind, lines, kind, VOCAB)
            # A unigram model adds up scores in single precision: what it does with a word depends on how much came before,
            # which is not the same in a block and in the whole text.
            self.check(self.dir / kind, model.encode, kind, whole=kind != "unigram")

    def test_bytes(self):
        self.check("bytes", lambda text: list(text.encode()), "bytes")

    def test_conversations(self):
        """As Jinja renders the published templates and the tokenizers package encodes that, answers by their place."""
        tokenizer = texts.gpt2(self.corpus, VOCAB)
        rng = random.Random(SEED + 1)
        for name, (jinja, separator) in tokenize_templates.TEMPLATES.items():
            path = self.dir / f"chat-{name}"
            path.mkdir()
            tokenizer.save(str(path / "tokenizer.json"))
            bos, eos = ("<|begin_of_text|>", "<|eot_id|>") if "llama3" in name else ("<|im_start|>", "<|im_end|>")
            (path / "tokenizer_config.json").write_text(
                json.dumps({"chat_template": jinja, "bos_token": bos, "eos_token": eos}))
            chats = [self.conversation(rng, name) for _ in range(200)]
            source, out = self.dir / "chat.jsonl", self.dir / "chat.bin"
            source.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
            tokenize("--tokenizer", path, "--format", "chat", "--input", source, "--output", out, "--separator", separator)
            template = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(jinja)
            ids, counts, last = [], [], tokenizer.token_to_id(separator)
            for chat in chats:
                rendered = template.render(messages=chat, bos_token=bos, eos_token=eos, add_generation_prompt=False,
                                           raise_exception=self.fail)
                encoded = tokenizer.encode(rendered, add_special_tokens=False)
                answers = tokenize_templates.answers(name, rendered, eos)
                self.assertEqual(len(answers), sum(m["role"] == "assistant" for m in chat))
                ids += encoded.ids + [last]
                counts += [int(any(a < e and b > s for s, e in answers)) for a, b in encoded.offsets] + [0]
            self.assertSame(read(out)[0], ids, name)
            self.assertSame(read(out)[1], counts, name + ", what counts")

    @staticmethod
    def conversation(rng, name):
        chat = [] if name == "mistral" or rng.random() < 0.5 else [{"role": "system", "content": texts.odd(rng, 40)}]
        for _ in range(rng.randrange(1, 4)):
            chat += [{"role": "user", "content": texts.odd(rng, rng.randrange(1, 200))},
                     {"role": "assistant", "content": rng.choice(["", " ", "\n"]) + texts.odd(rng, rng.randrange(1, 200)) + "x"}]
        if name == "qwen3" and rng.random() < 0.5:
            chat[-1]["content"] = "<think>\nHm.\n\nYes.\n</think>\n\n" + chat[-1]["content"]
        return chat


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
