#!/usr/bin/env python3
"""Guards of the house: what the compiler cannot see.

guard.py arrows   every include stays inside the import list (LINKS) of its room, and every import list inside ARROWS
guard.py doors    each third party is seen in one place only; the pure rooms do no I/O, hold no clock, start no thread
guard.py format   clang-format agrees with every source
guard.py layout   the top level is what it should be, files are short or say why, no line leaves something open
guard.py links    every relative link in a Markdown file leads somewhere
guard.py bugs     the table of docs/testing.md and the tests that carry its numbers are the same

Each prints one line per offence (file:line: what) and exits 1 when there is one.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The arrows of the house: a room may import what stands here, and what those import. Ground floor first.
ARROWS = {
    "operator/base": [],
    "trainer/contract": [],
    "operator/http": ["operator/base"],
    "trainer/checkpoint": ["operator/base", "trainer/contract"],
    "trainer/tokenizer": ["operator/base"],
    "trainer/generate": ["trainer/checkpoint", "trainer/engine", "trainer/model", "trainer/tokenizer"],
    "operator/api": ["operator/base"],
    "operator/sizing": ["operator/api", "trainer/contract"],
    "operator/placement": ["operator/api", "operator/sizing"],
    "operator/lifecycle": ["operator/sizing", "operator/placement", "trainer/contract"],
    "operator/cluster": ["operator/api", "trainer/contract"],
    "operator/local": ["operator/cluster", "trainer/contract"],
    "operator/kube": ["operator/cluster", "operator/http", "trainer/contract"],
    "operator/runtime": ["operator/cluster", "operator/http"],
    "operator/controller": ["operator/cluster", "operator/lifecycle", "operator/runtime"],
    "operator/cli": ["operator/controller", "operator/local", "operator/kube", "operator/http", "trainer/checkpoint",
                     "operator/sizing", "trainer/data", "trainer/generate", "trainer/tokenizer"],
    "operator": ["operator/controller", "operator/kube", "operator/runtime", "operator/http", "operator/sizing"],
    "trainer/launch": ["operator/base", "operator/http", "trainer/contract"],
    "trainer/config": ["operator/base", "trainer/contract"],
    "trainer/device": ["operator/base", "trainer/contract"],
    "trainer/dist": ["operator/base", "trainer/contract"],
    "trainer/data": ["operator/base", "trainer/config"],
    "trainer/optim": ["operator/base", "trainer/contract"],
    "trainer/quant": ["trainer/contract"],
    "trainer/engine": ["trainer/device", "trainer/dist", "trainer/optim", "trainer/quant"],
    "trainer/model": ["trainer/engine", "trainer/checkpoint", "trainer/quant"],
    "trainer/observe": ["operator/base", "trainer/contract"],
    "trainer/loop": ["trainer/config", "trainer/data", "trainer/model", "trainer/engine", "trainer/checkpoint",
                     "trainer/generate", "trainer/observe", "trainer/device", "trainer/dist", "trainer/optim",
                     "trainer/tokenizer"],
}
# Programs: each main is wired from its top room.
MAINS = {"operator/main.cpp": "operator", "operator/manager.h": "operator", "operator/manager.cpp": "operator",
         "operator/logging.h": "operator", "operator/logging.cpp": "operator", "trainer/main.cpp": "trainer/loop"}

# Third parties and the only places that see them.
DOORS = [
    (r"<cpprest/|<pplx/", r"operator/http/cpprest_[a-z_]*\.(h|cpp)"),
    (r"<boost/", r"operator/http/(server[a-z_]*|connection|session|plain_transport)\.(h|cpp)"),
    (r"<yaml-cpp/", r"operator/api/yaml\.cpp|operator/kube/config[a-z_]*\.cpp"),
    (r"<prometheus/", r"operator/runtime/metrics[a-z_]*\.(h|cpp)"),
    (r"<CLI/", r"operator/cli/.*|operator/main\.cpp|trainer/launch/main\.cpp|trainer/main\.cpp"),
    (r"<sentencepiece_", r"trainer/tokenizer/sentence_piece\.cpp"),
    (r"tokenizer/crate\.h", r"trainer/tokenizer/hugging_face\.cpp"),
    (r"<torch/csrc/distributed|<gloo/|<nccl", r"trainer/dist/.*\.(cpp|h)"),
    (r"<ATen/|<torch/|<c10/", r"trainer/(device|dist|data|optim|quant|engine|model|generate|loop)/.*|trainer/main\.cpp"),
]
PURE = ("operator/sizing", "operator/placement", "operator/lifecycle")
IMPURE = re.compile(
    r"<(thread|mutex|condition_variable|fstream|filesystem|iostream|cstdio|random|future|atomic|unistd\.h|sys/|fcntl\.h)"
    r"|::now\(|getenv|std::rand\b|\bsleep|spdlog|RealClock")

SOURCES = [p for d in ("operator", "trainer", "tests") for e in ("*.h", "*.cpp") for p in sorted((ROOT / d).rglob(e))]
offences = []


def offence(path, line, text):
    offences.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def room_of(path):
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] in ("operator", "trainer") and len(parts) > 2 else MAINS.get("/".join(parts))


def closure(rooms, edges):
    seen, todo = set(), list(rooms)
    while todo:
        room = todo.pop()
        if room not in seen:
            seen.add(room)
            todo += edges.get(room, [])
    return seen


def import_lists():
    """Room -> rooms in the LINKS of its CMakeLists.txt files (library operator_sizing is the room operator/sizing)."""
    lists = {}
    for room in ARROWS:
        links = set()
        # "operator" is its main alone; the rooms below it answer for themselves.
        below = (ROOT / room).rglob if "/" in room else (ROOT / room).glob
        for cmake in sorted(below("CMakeLists.txt")):
            for name in re.findall(r"\b(operator|trainer)_([a-z]+)(?:_[a-z_]+)?\b", cmake.read_text()):
                links.add("/".join(name))
        lists[room] = links - {room}
    return lists


def arrows():
    lists = import_lists()
    for room, links in lists.items():
        allowed = closure([room], ARROWS)
        for link in sorted(links - allowed):
            offence(ROOT / room / "CMakeLists.txt", 1, f"{room} may not import {link}: see ARROWS in tests/guards/guard.py")
    for path in SOURCES:
        room = room_of(path)
        if path.is_relative_to(ROOT / "tests") or room is None:
            continue
        if room not in ARROWS:
            offence(path, 1, f"{room} is not a room of the house: add it to ARROWS, or move the file")
            continue
        imported = closure([room] + (list(lists[room])), lists)
        for n, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#include "((?:operator|trainer)/[a-z_]+)/', line)
            if m and m.group(1) not in imported:
                offence(path, n, f"{room} includes {m.group(1)}, which is not in its import list")
            elif re.match(r'\s*#include "(?!operator/|trainer/)', line):
                offence(path, n, "includes start at the root of the repository")


def doors():
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        if name.startswith("tests/"):
            continue
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if not line.lstrip().startswith("//"):
                for pattern, where in DOORS:
                    if "#include" in line and re.search(pattern, line) and not re.fullmatch(where, name):
                        offence(path, n, f"{line.strip()} belongs in {where} only")
                if name.startswith(PURE):
                    m = IMPURE.search(line.split("//")[0])
                    if m:
                        offence(path, n, f"'{m.group(0)}' in a pure room")


def format_():
    run = subprocess.run(["clang-format-19", "--dry-run", "--Werror", *map(str, SOURCES)], capture_output=True, text=True)
    if run.returncode:
        for line in run.stderr.splitlines():
            if "error:" in line:
                offences.append(line.replace(str(ROOT) + "/", "").replace("error: ", "") + ": run clang-format-19 -i")
        if not offences:
            offences.append(f"clang-format-19: {run.stderr.strip()}")


def layout():
    known = {"CMakeLists.txt", "CMakePresets.json", "operator", "trainer", "crds", "charts", "tests", "docs", "Dockerfile",
             "README.md", "LICENSE", "build"}
    for entry in ROOT.iterdir():
        if entry.name not in known and not entry.name.startswith("."):
            offence(entry, 1, "the top level does not know this entry")
    open_words = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|not implemen" r"ted yet")
    for path in SOURCES:
        lines = path.read_text().splitlines()
        first_comment = " ".join(l for l in lines[:12] if l.startswith("//"))
        if len(lines) > 400 and not path.is_relative_to(ROOT / "tests") and "lines" not in first_comment.lower():
            offence(path, 1, f"{len(lines)} lines: split it by what it knows, or say in its first comment why it has so many lines")
        for n, line in enumerate(lines, 1):
            if open_words.search(line):
                offence(path, n, "leaves something open")
        if path.suffix == ".h" and "#pragma once" not in lines[:40]:
            offence(path, 1, "no #pragma once")
        if path.suffix == ".h" and not lines[0].startswith("//"):
            offence(path, 1, "a header opens with what the thing is")


def links():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for n, line in enumerate(path.read_text().splitlines(), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                    offence(path, n, f"the link to {target} leads nowhere")


def bugs():
    document = ROOT / "docs" / "testing.md"
    told = {}  # row -> names of its tests
    for n, line in enumerate(document.read_text().splitlines(), 1):
        row = re.match(r"\| (\d+) \|", line)
        if not row:
            continue
        names = re.findall(r"`(\w+\.\w+)`", line.rsplit("|", 2)[-2])
        told[int(row[1])] = set(names)
        if not names:
            offence(document, n, f"row {row[1]} has no test")
        for name in names:
            if row[1] not in re.sub(r".*_Bug", "", name).split("_"):
                offence(document, n, f"{name} does not carry the number {row[1]}")
    found = {}
    for path in sorted((ROOT / "tests").rglob("*_test.cpp")):
        for suite, name in re.findall(r"TEST(?:_[FP])?\((\w+),\s*(\w+_Bug[0-9_]+)\)", path.read_text()):
            for row in re.sub(r".*_Bug", "", name).split("_"):
                found.setdefault(int(row), set()).add(f"{suite}.{name}")
    for row in sorted(told.keys() | found.keys()):
        for name in sorted(told.get(row, set()) ^ found.get(row, set())):
            where = "the table only" if name in told.get(row, set()) else "the tests only"
            offence(document, 0, f"row {row}: {name} is in {where}")


def main():
    checks = {"arrows": arrows, "doors": doors, "format": format_, "layout": layout, "links": links, "bugs": bugs}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    checks[sys.argv[1]]()
    print("\n".join(offences) or f"{sys.argv[1]}: {len(SOURCES)} sources, nothing to say")
    sys.exit(1 if offences else 0)


main()
