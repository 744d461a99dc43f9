"""Was every sample trained on exactly once, over all attempts of a job, and were they the ones of an undisturbed run?

    e2e_samples.py DISTURBED_DIR UNDISTURBED_DIR GLOBAL_BATCH STEPS [none|some]

With `none` no step may have been done twice, with `some` at least one must have been: work was lost, and done again.

The directories hold samples-ATTEMPT-RANK.jsonl, one line per sequence that a rank really read: step, cursor in the global
order, digest of the tokens. An attempt that starts below the last step of its predecessor does steps again: what counts is
the history that the checkpoints hold, so those steps are taken from the later attempt.
"""
import collections
import json
import pathlib
import re
import sys


def read(directory):
    """{attempt: {step: sorted [(cursor, digest)]}}; a line that a kill cut off is left out."""
    attempts = collections.defaultdict(lambda: collections.defaultdict(list))
    for file in pathlib.Path(directory).glob("samples-*-*.jsonl"):
        attempt = int(re.fullmatch(r"samples-(\d+)-\d+\.jsonl", file.name)[1])
        for line in file.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            attempts[attempt][entry["step"]].append((entry["cursor"], entry["digest"]))
    return {a: {s: sorted(v) for s, v in steps.items()} for a, steps in sorted(attempts.items())}


def main():
    disturbed, undisturbed = read(sys.argv[1]), read(sys.argv[2])
    batch, last = int(sys.argv[3]), int(sys.argv[4])
    wanted = sys.argv[5] if len(sys.argv) > 5 else None
    (reference,) = undisturbed.values()
    history, redone = {}, 0
    for attempt, steps in disturbed.items():
        first = min(steps)
        again = [s for s in history if s >= first]
        redone += len(again)
        for s in again:
            del history[s]
        history.update(steps)
        print(f"attempt {attempt}: steps {first} to {max(steps)}" + (f", {len(again)} of them done again" if again else ""))
    problems = []
    if sorted(history) != list(range(1, last + 1)):
        problems.append(f"the history has {len(history)} steps from {min(history)} to {max(history)}, not 1 to {last}")
    cursor = 0
    for step in sorted(history):
        if [c for c, _ in history[step]] != list(range(cursor, cursor + batch)):
            problems.append(f"step {step} read places {[c for c, _ in history[step]]}, not {cursor} to {cursor + batch - 1}")
        if history[step] != reference.get(step):
            problems.append(f"step {step} read other samples than the undisturbed run")
        cursor += batch
    if wanted is not None and (redone > 0) != (wanted == "some"):
        problems.append(f"{redone} steps were done again, and {wanted} should have been")
    for problem in problems[:10]:
        print(f"e2e_samples: {problem}", file=sys.stderr)
    print(f"{cursor} samples of {len(history)} steps, each exactly once, the same as undisturbed; {redone} steps done again"
          if not problems else f"{len(problems)} steps are wrong")
    sys.exit(1 if problems else 0)


main()
