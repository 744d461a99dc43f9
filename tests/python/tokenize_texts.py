"""Texts and tokenizers for the test and the benchmark of `trainyard data tokenize`: real text of this machine, and tokenizers
of every kind trained on it. A seed makes all of it again."""
import gzip
import json
import pathlib
import random
import subprocess

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2]

CYRILLIC = """съешь же ещё этих мягких французских булок да выпей чаю Широкая электрификация южных губерний даст мощный толчок подъёму
сельского хозяйства Москва Київ ґанок їжак Ђорђе ѝ""".split()
OTHERS = """你好世界 機械学習 こんにちは 안녕하세요 مرحبا بالعالم שלום नमस्ते ไทยแลนด์ Ελληνικά naïve façade Ünïcödé ﬁn Å Å ½ ① ﷺ
e\u0301 a\u0308\u0323 \u200d \u00a0x\u3000y \ufeffz İstanbul ß ǅ 𝔘𝔫𝔦 𒀀""".split(" ")
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇪🇺", "❤️", "1️⃣", "🫠", "🧑🏿‍🚀"]
SPACES = [" ", " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "    "]


def bible():
    return subprocess.run(["bible", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout


def code():
    files = sorted([*(ROOT / "trainer").rglob("*.cpp"), *(ROOT / "operator").rglob("*.h"), *(ROOT / "tests").rglob("*.py")])
    return "".join(f.read_text() for f in files)


def odd(rng, characters):
    """Words of many scripts, emoji, numbers, and white space of all kinds between them."""
    out, size = [], 0
    while size < characters:
        word = rng.choice([CYRILLIC, CYRILLIC, OTHERS, EMOJI, [str(rng.randrange(10**rng.randrange(1, 9)))],
                           [chr(rng.randrange(0x21, 0x3000))], [rng.choice("'\"!?.,;:-_()[]{}<>/\\|@#$%^&*+=~`")]])
        out += [rng.choice(word), rng.choice(SPACES)]
        size += len(out[-1]) + len(out[-2])
    return "".join(c for c in "".join(out))


def pieces(rng, text, size):
    """A part of `text` of about `size` characters, from somewhere."""
    start = rng.randrange(max(1, len(text) - size))
    return text[start:start + size]


def mixed(seed, size=1_000_000):
    """About `size` bytes, never more: code, prose and odd text in turns."""
    rng = random.Random(seed)
    prose, source, out, total = bible(), code(), [], 0
    while True:
        part = rng.choice([lambda: pieces(rng, prose, 20_000), lambda: pieces(rng, source, 20_000),
                           lambda: odd(rng, 8_000)])() + rng.choice(SPACES)
        if total + len(part.encode()) > size:
            return "".join(out)
        out.append(part)
        total += len(part.encode())


CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
               "<|end_header_id|>", "<|eot_id|>"]
# As published with Llama 3: words, numbers of up to three digits, line breaks; it needs a look-ahead.
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def gpt2(corpus, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, special_tokens=CHAT_TOKENS, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def llama3(corpus, vocab):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, special_tokens=CHAT_TOKENS, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def metaspace(corpus, vocab):
    """As tokenizer.json of Llama 2 and Mistral: BPE over characters, bytes where there are none."""
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # The trainer wants words; the tokenizer itself takes a text whole, as the published ones do.
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]))
    t.pre_tokenizer = None
    plain = json.loads(t.to_str())  # bytes are no special tokens
    plain["added_tokens"] = plain["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(plain))


def wordpiece(corpus, vocab):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
                                                            show_progress=False))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    return t


def sentence_piece(directory, lines, kind, vocab):
    """tokenizer.model in `directory`; unigram as T5 has it, bpe as Llama 2."""
    directory.mkdir()
    text = directory / "train.txt"
    text.write_text("\n".join(lines))
    options = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
               "split_digits": True} if kind == "bpe" else {}
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(directory / "tokenizer"), model_type=kind, vocab_size=vocab, num_threads=2,
        character_coverage=0.9995, minloglevel=2, input_sentence_size=20_000, shuffle_input_sentence=False, **options)
    text.unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
