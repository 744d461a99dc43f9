"""What exact sums (training.determinism WorldSize) cost: our engine with them against our engine without, alternating in one
run, same weights and tokens. Needs engine_rank in the build directory; no PyTorch.

    ninja -C build/release engine_rank
    python3 tests/bench/engine/determinism.py --json docs/benchmarks/determinism.json
"""
import argparse
import json
import pathlib
import re

import bench
import rows as spec


def measure(row, options):
    engine = [str(options.build / "bin/engine_rank")]
    with bench.Gang(lambda s: engine + [s], dict(row, exact=True)) as exact, bench.Gang(lambda s: engine + [s], row) as plain:
        gangs = {"exact": exact, "plain": plain}
        sides = {name: {"seconds": [], "losses": []} for name in gangs}
        for name, gang in gangs.items():
            bench.told(sides[name], gang.ask("steps 1"))
            gang.ask("reset")
            bench.told(sides[name], gang.ask("steps 2"))
            sides[name]["tensors"] = max(m["tensorBytes"] for m in gang.ask("memory"))
        for pair in range(-1, options.pairs):  # the first one warms up
            for name in ("exact", "plain") if pair % 2 else ("plain", "exact"):
                seconds = bench.told(sides[name], gangs[name].ask(f"steps {row['steps']}"))
                if pair >= 0:
                    sides[name]["seconds"].append(seconds)
    for a, b in zip(sides["exact"]["losses"], sides["plain"]["losses"], strict=True):
        if not abs(a - b) <= bench.TOLERANCE[row["precision"]] * abs(b):
            raise SystemExit(f"determinism: {row['name']}: the losses part: {sides}")
    return sides


def entries(row, sides):
    tokens = row["batch"] * row["length"] * row["ranks"] * row["steps"]
    rate = {name: [tokens / s for s in side["seconds"]] for name, side in sides.items()}
    return [
        bench.entry("tokens_worldsize_" + row["name"], "tokens/s", rate["exact"], rate["plain"], "higher", None, "none"),
        bench.entry("memory_worldsize_" + row["name"], "MiB", [sides["exact"]["tensors"] / 2**20],
                    [sides["plain"]["tensors"] / 2**20], "lower", None, "none"),
    ]


def main():
    parser = argparse.ArgumentParser(description="The cost of exact sums on this machine.")
    parser.add_argument("--build", type=pathlib.Path, default=bench.ROOT / "build/release")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rows", default="", help="only rows whose name has this regular expression; the others stay in the file")
    options = parser.parse_args()
    found = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows = {entry["name"]: entry for entry in found}
    for row in [spec.row("10M", ranks, stage, precision) for ranks, stage, precision in
                ((1, 0, "fp32"), (2, 0, "fp32"), (2, 2, "fp32"), (2, 3, "fp32"), (2, 3, "bf16"))]:
        if not re.search(options.rows, row["name"]):
            continue
        for entry in entries(row, measure(row, options)):
            bench.show(entry)
            rows[entry["name"]] = entry
        if options.json:
            bench.save(options.json, list(rows.values()))


if __name__ == "__main__":
    main()
