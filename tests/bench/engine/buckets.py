"""How large the reductions of stage 0 should be: the engine with buckets of several sizes, alternating in one run, same
weights and tokens. Ratios are to the first size. Needs engine_rank in the build directory; no PyTorch.

    ninja -C build/release engine_rank
    python3 tests/bench/engine/buckets.py
"""
import argparse
import contextlib
import pathlib
import statistics

import bench
import rows as spec

MIB = 1 << 20
SIZES = {"25 MiB": 25 * MIB, "8 MiB": 8 * MIB, "4 MiB": 4 * MIB, "1 MiB": MIB, "all in one": 1 << 40}


def measure(row, options):
    """Tokens per second of each size, sample by sample."""
    engine = [str(options.build / "bin/engine_rank")]
    tokens = row["batch"] * row["length"] * row["ranks"] * row["steps"]
    sides = {name: {"seconds": [], "losses": []} for name in SIZES}
    with contextlib.ExitStack() as stack:
        gangs = {name: stack.enter_context(bench.Gang(lambda s: engine + [s], dict(row, bucketBytes=size)))
                 for name, size in SIZES.items()}
        for sample in range(-1, options.samples):  # the first one warms up
            for name in list(SIZES) if sample % 2 else reversed(SIZES):
                seconds = bench.told(sides[name], gangs[name].ask(f"steps {row['steps']}"))
                if sample >= 0:
                    sides[name]["seconds"].append(seconds)
    losses = [side["losses"] for side in sides.values()]
    if any(other != losses[0] for other in losses):
        raise SystemExit(f"buckets: {row['name']}: how sums are cut must not change a bit of them: {losses}")
    return {name: [tokens / s for s in side["seconds"]] for name, side in sides.items()}


def main():
    parser = argparse.ArgumentParser(description="Sizes of buckets at stage 0 on this machine.")
    parser.add_argument("--build", type=pathlib.Path, default=bench.ROOT / "build/release")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--model", choices=spec.MODELS, default="10M")
    options = parser.parse_args()
    row = spec.row(options.model, 2, 0)
    rates = measure(row, options)
    base = rates[next(iter(SIZES))]
    for name, rate in rates.items():
        ratio = statistics.median(a / b for a, b in zip(rate, base, strict=True))
        print(f"{row['name']:16} {name:>10} {statistics.median(rate):8.0f} tokens/s, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
