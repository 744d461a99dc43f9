"""What is compared: models, rows and the targets they are held to."""

# vocab * hidden is counted twice: embeddings are not tied.
MODELS = {
    "10M": {"layers": 8, "hidden": 256, "heads": 8, "kvHeads": 4, "ffn": 688, "vocab": 8192},
    "50M": {"layers": 12, "hidden": 512, "heads": 8, "kvHeads": 4, "ffn": 1376, "vocab": 16384},
    "150M": {"layers": 16, "hidden": 768, "heads": 12, "kvHeads": 4, "ffn": 2048, "vocab": 32000},
}
# Sequences per rank and step, tokens of each, steps per sample.
SIZES = {"10M": (4, 256, 2), "50M": (2, 256, 1), "150M": (1, 128, 1)}
SMALLEST = "10M"


def row(model, ranks, stage, precision="fp32", checkpointing=False):
    batch, length, steps = SIZES[model]
    return {"name": f"{model}_{ranks}r_s{stage}_{precision}" + ("_ac" if checkpointing else ""), "size": model,
            "model": MODELS[model], "ranks": ranks, "stage": stage, "precision": precision,
            "checkpointing": checkpointing, "batch": batch, "length": length, "steps": steps, "learningRate": 1e-3}


def rows():
    small = [row("10M", ranks, stage, "fp32", ac) for ranks in (1, 2, 4) for stage in (0, 2, 3) for ac in (False, True)]
    bf16 = [row("10M", 2, stage, "bf16") for stage in (0, 2, 3)]
    middle = [row("50M", 1, 0)] + [row("50M", 2, stage) for stage in (0, 2, 3)]
    return small + bf16 + middle + [row("150M", 2, stage) for stage in (0, 3)]


def speed_target(r):
    """Ratio of tokens per second, ours over PyTorch's, that we hold ourselves to."""
    if r["ranks"] == 1:
        return 0.97
    return 1.1 if r["ranks"] == 2 and r["stage"] >= 2 else 1.0


def resident_target(r):
    return 0.5 if r["size"] == SMALLEST else None
