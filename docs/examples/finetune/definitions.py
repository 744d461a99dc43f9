"""Conversations to tune a model on: common nouns of WordNet (Debian's package wordnet-base) with what they mean, as JSON lines.
usage: definitions.py DIRECTORY [WORDNET]    writes train.jsonl and held-out.jsonl"""
import json
import pathlib
import re
import sys
import zlib


def nouns(wordnet):
    """(word, what it means most often, number of that meaning)."""
    data = (wordnet / "data.noun").read_bytes()
    for line in (wordnet / "index.noun").read_text().splitlines():
        if not re.match("[a-z]{3,} ", line):  # the licence; numbers, names and phrases
            continue
        word, _, meanings, *rest = line.split()
        if rest[-int(meanings) - 1] == "0":  # meanings that were met in the texts WordNet counted
            continue
        meaning = int(rest[-int(meanings)])  # its place in data.noun; the first is the most frequent
        text = data[meaning:data.index(b"\n", meaning)].decode().split(" | ")[1]
        yield word, text.split('; "')[0].strip(), meaning  # without the examples


def main(directory, wordnet="/usr/share/wordnet"):
    chosen = sorted(nouns(pathlib.Path(wordnet)), key=lambda noun: zlib.crc32(noun[0].encode()))
    sets = {"train": [], "held-out": []}
    for word, text, meaning in chosen:
        # By meaning: words of one meaning share its text, and what is held out must not be known from another word.
        held_out = zlib.crc32(str(meaning).encode()) % 20 == 0
        chat = [{"role": "user", "content": f'Define the noun "{word}".'}, {"role": "assistant", "content": text}]
        sets["held-out" if held_out else "train"].append({"messages": chat})
    for name, chats in sets.items():
        path = pathlib.Path(directory, name + ".jsonl")
        path.write_text("".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats))
        print(f"{path}: {len(chats):,} conversations")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
