"""Our engine against PyTorch, alternating in one run: tokens per second, peak tensor bytes and resident memory per rank.
run.sh is the way in; --help tells the options. Both sides start from the same weights and see the same tokens, and the
run fails when their losses part: what is compared is the same mathematics.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import rows as spec

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# Largest relative difference of a loss. In fp32 both sides round differently and AdamW amplifies it step by step; in bf16
# they also round in other places.
TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}
SECONDS_PER_ANSWER = 300


class Gang:
    """The ranks of one side: started together, told the same, each answering one JSON line per command."""

    def __init__(self, command, setting):
        port = free_port()
        env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        self.ranks = [subprocess.Popen(command(json.dumps(dict(setting, rank=rank, port=port))), env=env, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(setting["ranks"])]
        try:
            self.answers("start")
        except BaseException:
            self.__exit__(True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        for rank in self.ranks:
            rank.stdin.close()
            if failed:
                rank.kill()
        codes = [rank.wait() for rank in self.ranks]
        if not failed and any(codes):
            raise SystemExit(f"bench: ranks ended with {codes}")

    def ask(self, command):
        for rank in self.ranks:
            rank.stdin.write(command + "\n")
            rank.stdin.flush()
        return self.answers(command)

    def answers(self, command):
        lines = [rank.stdout.readline() for rank in self.ranks]
        if not all(lines):
            raise SystemExit(f"bench: a rank ended at '{command}': see what it said above")
        return [json.loads(line) for line in lines]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def measure(row, options, scratch):
    """Runs one row; returns what both sides showed."""
    engine = [str(options.build / "bin/engine_rank")]
    weights = scratch / f"{row['size']}_{row['ranks']}.safetensors"
    if not weights.exists():
        subprocess.run(engine + [json.dumps(dict(row, rank=0, port=0)), "--export", str(weights)], check=True)
    counter = str(options.build / "lib/libengine_count_tensors.so")
    torch = [sys.executable, str(HERE / "torch_rank.py")]
    sides = {}
    with Gang(lambda s: engine + [s], row) as ours, Gang(lambda s: torch + [s, str(weights), counter], row) as theirs:
        gangs = {"ours": ours, "torch": theirs}
        for name, gang in gangs.items():
            sides[name] = {"seconds": [], "losses": []}
            told(sides[name], gang.ask("steps 1"))
            gang.ask("reset")
            before = payload(gang) if name == "ours" else None
            told(sides[name], gang.ask("steps 2"))
            sides[name]["memory"] = gang.ask("memory")
            if name == "ours":
                check_payload(row, before, sides[name]["memory"])
        for pair in range(-1, options.pairs):  # the first one warms up
            for name in ("ours", "torch") if pair % 2 else ("torch", "ours"):
                seconds = told(sides[name], gangs[name].ask(f"steps {row['steps']}"))
                if pair >= 0:
                    sides[name]["seconds"].append(seconds)
    check_losses(row, sides)
    return sides


def told(side, answers):
    side["losses"] += answers[0]["losses"]
    return max(a["seconds"] for a in answers)


def payload(gang):
    return [m["payload"] for m in gang.ask("memory")]


def check_payload(row, before, memory):
    for rank, (start, m) in enumerate(zip(before, memory)):
        counted, theory = (m["payload"] - start) / 2, m["payloadOfStep"]
        if rank == 0:
            print(f"  payload per step: {counted:.0f} bytes counted, {theory} by theory", flush=True)
        if counted != theory:
            raise SystemExit(f"bench: {row['name']}: rank {rank} handed {counted} bytes a step to the wire, theory says {theory}")


def check_losses(row, sides):
    worst = max(abs(a - b) / abs(b) for a, b in zip(sides["ours"]["losses"], sides["torch"]["losses"], strict=True))
    ours = sides["ours"]["losses"]
    print(f"  losses {ours[0]:.4f} -> {ours[-1]:.4f} over {len(ours)} steps, largest relative difference {worst:.1e}", flush=True)
    if not worst <= TOLERANCE[row["precision"]]:
        raise SystemExit(f"bench: {row['name']}: the losses part: ours {ours}, torch {sides['torch']['losses']}")


def spread(values):
    quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return (quarters[2] - quarters[0]) / 2


def entry(name, unit, ours, theirs, better, target, baseline):
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    made = {"name": name, "value": statistics.median(ours), "spread": spread(ours), "unit": unit,
            "baseline": {"name": baseline, "value": statistics.median(theirs)}, "ratio": statistics.median(ratios),
            "ratioSpread": spread(ratios), "better": better}
    return dict(made, target=target, target_of="ratio") if target is not None else made


def entries(row, sides):
    tokens = row["batch"] * row["length"] * row["ranks"] * row["steps"]
    rate = {name: [tokens / s for s in side["seconds"]] for name, side in sides.items()}
    baseline = "pytorch_fsdp2" if row["stage"] else "pytorch_ddp" if row["ranks"] > 1 else "pytorch_plain"
    def worst(name, key):  # of the ranks
        return [max(m[key] for m in sides[name]["memory"]) / 2**20]
    return [
        entry("tokens_" + row["name"], "tokens/s", rate["ours"], rate["torch"], "higher", spec.speed_target(row), baseline),
        entry("memory_" + row["name"], "MiB", worst("ours", "tensorBytes"), worst("torch", "tensorBytes"), "lower", 1.0, baseline),
        entry("resident_" + row["name"], "MiB", worst("ours", "residentBytes"), worst("torch", "residentBytes"), "lower",
              spec.resident_target(row), baseline),
    ]


def met(e):
    return "target" not in e or (e["ratio"] >= e["target"] if e["better"] == "higher" else e["ratio"] <= e["target"])


def show(e):
    target = f"{'>=' if e['better'] == 'higher' else '<='} {e['target']:g}: {'met' if met(e) else 'MISSED'}" if "target" in e else "-"
    print(f"{e['name']:32} {e['value']:10.1f} {e['spread']:8.1f} {e['unit']:9} {e['baseline']['name']:14} "
          f"{e['baseline']['value']:10.1f}  ratio {e['ratio']:6.3f} +- {e['ratioSpread']:.3f}  {target}", flush=True)


def machine():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{found.group(1) if found else 'unknown processor'}, {os.cpu_count()} threads"


def write(file, made):
    """Other rows that the file holds stay, so that a run may be done in parts; what is no row any more goes."""
    found = {e["name"]: e for e in (json.loads(file.read_text())["rows"] if file.exists() else [])}
    found.update({e["name"]: e for e in made})
    order = [kind + r["name"] for r in spec.rows() for kind in ("tokens_", "memory_", "resident_")]
    save(file, [found[name] for name in order if name in found])


def save(file, entries):
    """Rows of an earlier run that stay in the file keep its commit and date."""
    if file.exists():
        before = json.loads(file.read_text())
        kept = {e["name"]: e for e in before["rows"]}
        for entry in entries:
            if kept.get(entry["name"]) == entry:
                entry.setdefault("commit", before["commit"])
                entry.setdefault("date", before["date"])
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps({"machine": machine(), "commit": commit, "date": date, "rows": entries}, indent=2) + "\n")
    temporary.rename(file)


def cell(e):
    mark = "" if "target" not in e else " ✓" if met(e) else " ✗"
    ours, theirs = (f"{v:,.0f}" for v in (e["value"], e["baseline"]["value"]))
    return f"{ours} / {theirs}", f"{e['ratio']:.2f}{mark}"


def write_table(document, file):
    """The rows of the JSON file as a table between the marks of the document."""
    content = json.loads(file.read_text())
    found = {e["name"]: e for e in content["rows"]}
    lines = [f"{content['machine']}; commit {content['commit']}, {content['date'][:10]}. Ours / PyTorch, and the ratio of the two; "
             "✓ and ✗ say whether it meets its target. Rows of an earlier run have its commit in the JSON file.", "",
             "| row | tokens/s | | tensors, MiB | | resident, MiB | |", "| --- | ---: | --- | ---: | --- | ---: | --- |"]
    for r in spec.rows():
        if "tokens_" + r["name"] in found:
            cells = [c for kind in ("tokens_", "memory_", "resident_") for c in cell(found[kind + r["name"]])]
            lines.append(f"| {r['name']} | " + " | ".join(cells) + " |")
    text = document.read_text()
    before, rest = text.split("<!-- rows -->\n")
    after = rest.split("<!-- /rows -->")[1]
    document.write_text(before + "<!-- rows -->\n" + "\n".join(lines) + "\n<!-- /rows -->" + after)


def done(file):
    return {e["name"] for e in json.loads(file.read_text())["rows"]} if file and file.exists() else set()


def main():
    parser = argparse.ArgumentParser(description="The engine against PyTorch on this machine.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build directory (default: build/release)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows here; rows already in the file under other names stay")
    parser.add_argument("--document", type=pathlib.Path, help="with --json: a document whose table of rows is written anew")
    parser.add_argument("--rows", default="", help="only rows whose name has this regular expression, for example '10M_2r'")
    parser.add_argument("--resume", action="store_true", help="leave out rows that the JSON file already has")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of samples per row (default: 7)")
    parser.add_argument("--quick", action="store_true", help="3 pairs")
    options = parser.parse_args()
    if options.document and not options.json:
        parser.error("--document needs --json")
    options.pairs = 3 if options.quick else options.pairs
    chosen = [r for r in spec.rows() if re.search(options.rows, r["name"])]
    if options.resume:
        have = done(options.json)
        chosen = [r for r in chosen if "tokens_" + r["name"] not in have]
    everything = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch:
        for row in chosen:
            start = time.monotonic()
            print(f"{row['name']} ...", flush=True)
            made = entries(row, measure(row, options, pathlib.Path(scratch)))
            everything += made
            if options.json:
                write(options.json, made)
                if options.document:
                    write_table(options.document, options.json)
            print(f"  {time.monotonic() - start:.0f} s", flush=True)
            for e in made:
                show(e)
    missed = [e["name"] for e in everything if not met(e)]
    print(f"{options.pairs} pairs per row; {len(everything) - len(missed)} of {len(everything)} rows meet their target"
          + (f"; missed: {', '.join(missed)}" if missed else ""))


if __name__ == "__main__":
    main()
