#!/usr/bin/env python3
"""Numbers in NF4 for tests/trainer/quant/nf4_test.cpp, by the definitions of the paper (Dettmers et al., "QLoRA", 2023)
and of trainer/quant/nf4.h: nearest codes found by distance in float64, rows packed number by number.

    python3 -m venv ENV
    ENV/bin/pip install torch==2.11.0
    ENV/bin/python tests/golden/quant/generate.py            writes nf4.safetensors beside this file
    ENV/bin/python tests/golden/quant/generate.py --check    compares with what is there

The file holds `code`, the code book made from quantiles of the normal distribution as the paper says (section 3 and
appendix E), and for each case `x.CASE`, `packed.CASE`, `y.CASE` unpacked in float32 and `half.CASE` in bfloat16 (its bits).
"""
import json
import pathlib
import statistics
import struct
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 64


def code_book():
    """15 quantiles and a zero: 8 of the negative half and 9 of the positive one share it; scaled to [-1, 1]."""
    offset = (1 - 1 / (2 * 15) + 1 - 1 / (2 * 16)) / 2
    quantile = statistics.NormalDist().inv_cdf
    spread = lambda n: [offset + (0.5 - offset) * i / n for i in range(n)]
    values = [quantile(p) for p in spread(8)] + [0.0] + [-quantile(p) for p in spread(7)]
    return sorted(v / max(values) for v in values)


def float32(value):
    return torch.tensor(value, dtype=torch.float32)


def pack_row(row, code):
    blocks = [row[i:i + BLOCK] for i in range(0, len(row), BLOCK)]
    scales = torch.stack([b.abs().max() for b in blocks])
    offset = scales.min()
    step = (scales.max() - offset) / float32(255.0)
    q = ((scales - offset) / step).round().clamp(0, 255) if step > 0 else torch.zeros_like(scales)
    read = offset + step * q
    nibbles = []
    for block, scale in zip(blocks, read):
        for x in block:
            value = x / scale if scale > 0 else float32(0.0)
            nibbles.append(int((code.double() - value.double()).abs().argmin()))
    values = torch.stack([code[n] for n in nibbles]) * read.repeat_interleave(BLOCK)[:len(row)]
    nibbles += [0] * (len(nibbles) % 2)
    packed = bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2]))
    packed += bytes(int(v) for v in q) + struct.pack("<ff", offset.item(), step.item())
    return torch.tensor(list(packed), dtype=torch.uint8), values


def rows_of(n, generator):
    """Normal rows, one with an outlier, one with a block of zeros, zeros, and blocks of very different sizes."""
    x = torch.randn(5, n, generator=generator) * 0.02
    x[1, n // 2] = 3.0
    x[2, :BLOCK] = 0
    x[3] = 0
    x[4] *= 10.0 ** (torch.arange(n) // BLOCK % 5 - 3)
    return x


def arrays():
    book = code_book()
    published = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                 -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
    assert max(abs(a - b) for a, b in zip(book, published)) < 1e-6
    code = float32(published)
    out = {"code": float32(book)}
    generator = torch.Generator().manual_seed(20230523)
    for n in (1, 2, 63, 64, 65, 128, 130, 300, 1027):
        x = rows_of(n, generator)
        rows = [pack_row(row, code) for row in x]
        y = torch.stack([values for _, values in rows])
        out |= {f"x.{n}": x, f"packed.{n}": torch.stack([packed for packed, _ in rows]), f"y.{n}": y,
                f"half.{n}": y.bfloat16().view(torch.int16)}
    return out


def to_bytes(tensors):
    names = {torch.float32: "F32", torch.uint8: "U8", torch.int16: "I16"}
    header, data = {}, b""
    for name, t in tensors.items():
        raw = bytes(t.contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    path, made = HERE / "nf4.safetensors", to_bytes(arrays())
    if "--check" not in sys.argv:
        path.write_bytes(made)
    elif path.read_bytes() != made:
        sys.exit(f"{path} is not what generate.py makes")


main()
