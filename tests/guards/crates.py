#!/usr/bin/env python3
"""The crates that our programs link, with their licenses: docs/crates.md, made from cargo's own metadata.

crates.py CRATES                compares (CRATES: the directory of tests/setup.sh with their sources)
crates.py CRATES --write        writes it anew
crates.py CRATES --texts FILE   writes the licenses' own texts into FILE, as programs that are given to others carry them
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "crates.md"
HEAD = """# Crates that are linked

`trainyard` and whatever else reads a tokenizer.json link these Rust crates, in the versions of `trainer/tokenizer/Cargo.lock`. Where a crate
offers licenses to choose from, any of them will do; `onig_sys` holds Oniguruma, which is under the BSD-2-Clause license. The texts are in
`crates-licenses.txt` beside the programs, and in the trainer's image below `/usr/local/share/doc/trainyard`. Made by `tests/guards/crates.py`.

| crate | version | license |
| --- | --- | --- |
"""


def metadata(crates):
    return json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu",
         "--manifest-path", ROOT / "trainer/tokenizer/Cargo.toml", "--config", "source.crates-io.replace-with='vendored'",
         "--config", f"source.vendored.directory='{crates}/crates'"], check=True, capture_output=True, text=True).stdout)


def linked(meta):
    """Packages that end in the library: no build scripts' needs, no macros."""
    packages = {p["id"]: p for p in meta["packages"]}
    nodes = {n["id"]: n for n in meta["resolve"]["nodes"]}
    macro = lambda p: any("proc-macro" in t["kind"] for t in p["targets"])
    seen, todo = set(), [meta["resolve"]["root"]]
    while todo:
        at = todo.pop()
        if at in seen or macro(packages[at]):
            continue
        seen.add(at)
        todo += [d["pkg"] for d in nodes[at]["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
    return sorted((packages[i] for i in seen - {meta["resolve"]["root"]}), key=lambda p: (p["name"], p["version"]))


def texts(packages):
    """The license and notice files of each; where a choice is offered, all of them."""
    for p in packages:
        yield f"{'=' * 100}\n{p['name']} {p['version']}: {p['license']}\n"
        place = pathlib.Path(p["manifest_path"]).parent
        names = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")
        for path in sorted(f for f in place.rglob("*") if f.is_file() and f.name.upper().startswith(names)):
            yield f"{'-' * 100}\n{path.relative_to(place)}\n\n{path.read_text(errors='replace')}\n"


def main():
    if "--texts" in sys.argv:
        pathlib.Path(sys.argv[3]).write_text("".join(texts(linked(metadata(sys.argv[1])))))
        return
    rows = [f"| {p['name']} | {p['version']} | {p['license'].replace('/', ' OR ')} |\n" for p in linked(metadata(sys.argv[1]))]
    text = HEAD + "".join(rows)
    if "--write" in sys.argv:
        DOCUMENT.write_text(text)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != text:
        sys.exit(f"{DOCUMENT.relative_to(ROOT)} is not what cargo says: run tests/guards/crates.py {sys.argv[1]} --write")


main()
