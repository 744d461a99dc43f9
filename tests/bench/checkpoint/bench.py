"""Our checkpoints against torch.distributed.checkpoint (DCP) on the same state and disk, and beside the real trainer.
run.sh is the way in. Sides alternate; the ratio is the median over pairs that were taken one right after the other.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import trainer_runs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class Side:
    """A program that holds the state and answers one line per command."""

    def __init__(self, command):
        self.process = subprocess.Popen(list(map(str, command)), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.bytes = int(self.answer().split()[1])

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: {self.process.args[:2]} ended with {self.process.wait()}")
        return line

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def spread(values):
    quartiles = statistics.quantiles(values, n=4)
    return (quartiles[2] - quartiles[0]) / 2


def row(name, unit, measured, baseline, base, better, target=None, target_of="ratio"):
    ratios = [m / b for m, b in zip(measured, base)]
    out = {"name": name, "value": statistics.median(measured), "spread": spread(measured), "unit": unit,
           "baseline": {"name": baseline, "value": statistics.median(base)}, "ratio": statistics.median(ratios),
           "ratioSpread": spread(ratios), "better": better}
    if target is not None:
        out.update(target=target, target_of=target_of)
    return out


def drop_cache(directory):
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def alternate(pairs, one, other):
    """Both in alternating order, the first pair to warm up."""
    ours, theirs = [], []
    for pair in range(-1, pairs):
        results = {}
        for side in ((one, other) if pair % 2 == 0 else (other, one)):
            results[side] = side()
        if pair >= 0:
            ours.append(results[one])
            theirs.append(results[other])
    return ours, theirs


def dcp_rows(options, tmp):
    ours = Side([options.bin / "checkpoint_side", options.layers, tmp / "ours"])
    theirs = Side([sys.executable, HERE / "dcp_side.py", options.layers, tmp / "theirs"])
    assert ours.bytes == theirs.bytes, (ours.bytes, theirs.bytes)
    megabytes = ours.bytes / 1e6
    step = 0

    def saving(side, where, command="save"):
        def run():
            nonlocal step
            step += 1
            seconds = float(side.ask(f"{command} {step}"))
            for directory in (tmp / where).glob("step-*"):
                shutil.rmtree(directory)
            os.sync()  # what was removed is not written back while the other side works
            return seconds
        return run

    def rates(seconds):
        return [megabytes / s for s in seconds]

    rows = []
    a, b = alternate(options.pairs, saving(ours, "ours"), saving(theirs, "theirs"))
    rows.append(row("dcp_save", "MB/s", rates(a), "torch_dcp_save_sync_files", rates(b), "higher", 1.0))
    stalls = [float(theirs.ask(f"stall {10_000 + i}")) for i in range(options.pairs + 1)][1:]
    for directory in (tmp / "theirs").glob("step-*"):
        shutil.rmtree(directory)
    for side in (ours, theirs):
        side.ask("shards 1")

    def loading(side, where, cold):
        def run():
            if cold:
                drop_cache(tmp / where)
            return float(side.ask("load 1"))
        return run

    for cold in (True, False):
        a, b = alternate(options.pairs, loading(ours, "ours", cold), loading(theirs, "theirs", cold))
        rows.append(row("dcp_load" if cold else "dcp_load_cached", "MB/s", rates(a), "torch_dcp_load", rates(b), "higher", 1.0))
    for side in (ours, theirs):
        side.close()
    return rows, [s / theirs.bytes for s in stalls]


def memcpy_seconds(size):
    """Copying so many bytes into memory that is there already; the median of five."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def trainer_rows(options, tmp, dcp_stall_per_byte):
    """What saves beside training cost it: 1 save in `every` steps, against the same steps without one."""
    every, saves = 12, 4
    steps = every * (saves + 1) + 1
    stall, copy, dcp, extra, whole = [], [], [], [], []
    for pair in range(max(5, options.pairs - 2)):
        results = {}
        for with_saves in ((True, False) if pair % 2 == 0 else (False, True)):
            results[with_saves] = trainer_runs.train(options.bin, tmp, steps, every if with_saves else 0)
        seconds, found = results[True]
        plain, _ = results[False]
        found = found[1:]  # the first one also allocates
        assert len(found) >= saves - 1, found
        stall.append(statistics.median(s for s, _, _, _ in found))
        size = found[0][1]
        copy.append(memcpy_seconds(size))
        dcp.append(dcp_stall_per_byte[pair % len(dcp_stall_per_byte)] * size)
        # Steps after the first save, so that both sides are warm.
        extra.append((sum(seconds[every + 1:]) - sum(plain[every + 1:])) / saves)
        whole.append(statistics.median(w for _, _, w, _ in found))
    return [row("stall", "s", stall, "memcpy", copy, "lower", 1.2),
            row("dcp_async_stall", "s", stall, "torch_dcp_async_save_blocked", dcp, "lower", 1.0),
            row("save_slowdown", "s", extra, "whole_save", whole, "lower")]


def throttled_rows(options, tmp):
    """Steps that end while a save is written to a disk that is slow on purpose, and those of as long a time without one.
    None where a disk cannot be made slow here."""
    rate, size, every = 100_000_000, 3 << 30, 40
    try:
        disk = trainer_runs.SlowDisk(tmp.parent / "slow.disk", tmp / "volumes/checkpoints", size, rate)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"throttled_steps: no slow disk can be made here: {error}", flush=True)
        return []
    done, undisturbed = [], []
    try:
        for _ in range(max(5, options.pairs // 2)):
            seconds, found = trainer_runs.train(options.bin, tmp, 2 * every - 1, every, disk.enter)
            (_, _, whole, step), = found
            ends, at = [], 0.0
            for taken in seconds[step:]:
                at += taken
                ends.append(at)
            done.append(sum(end <= whole for end in ends))
            undisturbed.append(whole / statistics.median(seconds[1:step]))
    finally:
        disk.close()
    return [row("throttled_steps", "steps", done, "steps_in_as_long_without", undisturbed, "higher", 3, "value")]


def resize_row(options, tmp):
    seconds, cold = [], []
    for _ in range(max(5, options.pairs // 2)):
        run = trainer_runs.LocalRun(options.bin, tmp / "resize")
        try:
            first, known = run.await_step(set())
            cold.append(first - run.begun)
            taken, known = run.resize(4, known)
            seconds.append(taken)
        finally:
            run.close()
    return row("resize_seconds", "s", seconds, "start_of_the_job", cold, "lower", 3.0, "value")


def machine():
    model = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} threads"


def write(path, rows):
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    names = {r["name"] for r in rows}
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    text = {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine(), "rows": [r for r in old if r["name"] not in names] + rows}
    path.write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")


MARKS = ("<!-- rows -->\n", "<!-- /rows -->\n")


def document(path, json_path):
    """Writes the table of docs/checkpoints.md."""
    content = json.loads(json_path.read_text())
    lines = ["| row | measured | against | ratio | target |", "| --- | --- | --- | --- | --- |"]
    for r in content["rows"]:
        sign = {"higher": "at least", "lower": "at most"}[r["better"]]
        target = "-" if "target" not in r else f"{r['target_of']} {sign} {r['target']:g}" + ("" if met(r) else ", **missed**")
        lines.append(f"| `{r['name']}` | {r['value']:.4g} {r['unit']} | {r['baseline']['name']} {r['baseline']['value']:.4g} "
                     f"| {r['ratio']:.4g} | {target} |")
    text = path.read_text()
    begin, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    path.write_text(text[:begin] + f"\n{content['machine']}; commit {content['commit']}\n\n" + "\n".join(lines) + "\n\n" + text[end:])


def met(r):
    x = r[r["target_of"] if r["target_of"] == "value" else "ratio"]
    return x >= r["target"] if r["better"] == "higher" else x <= r["target"]


def show(rows):
    for r in rows:
        verdict = "-" if "target" not in r else "met" if met(r) else "MISSED"
        print(f"{r['name']:24} {r['value']:10.4g} {r['unit']:5} {r['baseline']['name']:30} {r['baseline']['value']:10.4g} "
              f"ratio {r['ratio']:7.3f} +- {r['ratioSpread']:5.3f}  {verdict}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path, help="whose table is written from the JSON file")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("."), help="on the disk that is measured")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--layers", type=int, default=5, help="of the state for DCP: 50 MB each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="checkpoint-bench-") as directory:
        tmp = pathlib.Path(directory)
        rows, stalls = dcp_rows(options, tmp)
        show(rows)
        trainer = trainer_rows(options, tmp / "trainer", stalls)
        show(trainer)
        throttled = throttled_rows(options, tmp / "throttled")
        show(throttled)
        resize = [resize_row(options, tmp)]
        show(resize)
    if options.json:
        write(options.json, rows + trainer + throttled + resize)
        if options.document:
            document(options.document, options.json)


if __name__ == "__main__":
    main()
