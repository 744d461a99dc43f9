"""Rows of docs/benchmarks/models.json: the measured thing beside a baseline of the same run, pair by pair."""
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]


def row(name, measured, base, unit, baseline, target):
    ratios = [a / b for a, b in zip(measured, base)]
    quarter = lambda values: statistics.quantiles(values, n=4)
    spread = lambda values: 0.5 * (quarter(values)[2] - quarter(values)[0])
    out = {"name": name, "value": statistics.median(measured), "spread": spread(measured), "unit": unit,
           "baseline": {"name": baseline, "value": statistics.median(base)}, "ratio": statistics.median(ratios),
           "ratioSpread": spread(ratios), "better": "higher"}
    if target:
        out |= {"target": target, "target_of": "ratio"}
    return out


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as cpus:
        model = next((line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} threads"


def write(path, rows):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    names = {r["name"] for r in rows}
    path.write_text(json.dumps({"machine": machine(), "commit": commit,
                                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                                "rows": [r for r in before if r["name"] not in names] + rows}, indent=2) + "\n")


def table(rows):
    unit = rows[0]["unit"]
    print(f"{'name':44} {unit:>8} {'spread':>7}  {'baseline':22} {unit:>8} {'ratio':>6} {'spread':>7}  target")
    for r in rows:
        verdict = "met" if r["ratio"] >= r["target"] else "MISSED"
        print(f"{r['name']:44} {r['value']:8.2f} {r['spread']:7.2f}  {r['baseline']['name']:22} {r['baseline']['value']:8.2f} "
              f"{r['ratio']:6.3f} {r['ratioSpread']:7.3f}  ratio >= {r['target']}: {verdict}")
