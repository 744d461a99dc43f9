#!/usr/bin/env python3
"""Reference arrays for tests/trainer/quant and tests/trainer/optim, made by the definitions of the papers.

    python3 -m venv ENV
    ENV/bin/pip install torch==2.11.0
    ENV/bin/python tests/golden/quant/generate.py            writes the files beside this one
    ENV/bin/python tests/golden/quant/generate.py --check    compares with what is there

nf4.safetensors: numbers in NF4 (Dettmers et al., "QLoRA", 2023; rows as trainer/quant/nf4.h has them), nearest codes
found by distance in float64, rows packed number by number. `code` is the code book made from quantiles of the normal
distribution as the paper says (section 3 and appendix E); each case has `x.CASE`, `packed.CASE`, `y.CASE` unpacked in
float32 and `half.CASE` in bfloat16 (its bits).

adamw8bit.safetensors: `signed` and `unsigned`, the dynamic tree maps (Dettmers et al., "8-bit Optimizers via Block-wise
Quantization", 2022) built as the paper tells, decade by decade; and six updates of a matrix: `start`, `grad.STEP`, then
`param.STEP`, `exp_avg.STEP` and `exp_avg_sq.STEP` (rows as trainer/optim/eight_bit.h has them).

adafactor.safetensors: six updates by torch.optim.Adafactor in float64 with a learning rate that its own rules leave alone,
`start.NAME`, `grad.NAME.STEP`, `param.NAME`, and its state `row_var.NAME`, `col_var.NAME`, `variance.NAME`.
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


def nf4():
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


def dynamic_map(signed):
    """256 values: 7 decades of cells, of which the highest has the most; the means of their bounds; 0 and 1."""
    values = [0.0, 1.0]
    for i in range(7):
        cells = 2 ** (i if signed else i + 1)
        bounds = torch.linspace(0.1, 1, cells + 1, dtype=torch.float64)
        means = ((bounds[:-1] + bounds[1:]) / 2 * 10.0 ** (i - 6)).tolist()
        values += means + ([-m for m in means] if signed else [])
    assert len(values) == 256
    return float32(sorted(values))


def pack_moment(rows, code, keep_above_zero):
    packed = []
    for row in rows:
        codes, scales = [], b""
        for block in row.split(256):
            scale = block.abs().max()
            for x in block:
                value = x / scale if scale > 0 else float32(0.0)
                nearest = int((code.double() - value.double()).abs().argmin())
                codes.append(max(nearest, 1) if keep_above_zero and x > 0 else nearest)
            scales += struct.pack("<f", scale.item())
        packed.append(torch.tensor(codes + list(scales), dtype=torch.uint8))
    return torch.stack(packed)


def unpack_moment(packed, n, code):
    rows = []
    for row in packed.tolist():
        scales = struct.unpack(f"<{-(-n // 256)}f", bytes(row[n:]))
        rows.append(torch.stack([code[c] * float32(scales[i // 256]) for i, c in enumerate(row[:n])]))
    return torch.stack(rows)


def adamw8bit():
    rows, n, lr, beta1, beta2, eps, decay, scale = 14, 300, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.25
    generator = torch.Generator().manual_seed(20211006)
    signed, unsigned = dynamic_map(True), dynamic_map(False)
    p = torch.randn(rows, n, generator=generator)
    out = {"signed": signed, "unsigned": unsigned, "start": p.clone()}
    moment1, moment2 = (torch.zeros(rows, n + 8, dtype=torch.uint8) for _ in range(2))
    for step in range(1, 7):
        # Sizes over six decades, a row that gets nothing, and one element that outshines its block.
        g = torch.randn(rows, n, generator=generator) * 10.0 ** -(torch.arange(rows) % 7).unsqueeze(1)
        g[3] = 0
        g[5, 17] = 1e3
        out[f"grad.{step}"] = g.clone()
        g = g * scale
        m = unpack_moment(moment1, n, signed) * beta1 + g * float32(1 - beta1)
        v = unpack_moment(moment2, n, unsigned) * beta2 + g * float32(1 - beta2) * g
        size, root = lr / (1 - beta1 ** step), 1 / (1 - beta2 ** step) ** 0.5
        p = p * float32(1 - lr * decay) - m * float32(size) / (v.sqrt() * float32(root) + float32(eps))
        moment1, moment2 = pack_moment(m, signed, False), pack_moment(v, unsigned, True)
        out |= {f"param.{step}": p.clone(), f"exp_avg.{step}": moment1, f"exp_avg_sq.{step}": moment2}
    return out


def adafactor():
    generator = torch.Generator().manual_seed(20180411)
    shapes = {"matrix": (37, 70), "vector": (41,), "row": (1, 9), "column": (23, 1)}
    out = {}
    for name, shape in shapes.items():
        p = torch.randn(shape, generator=generator).clamp(-1, 1)
        out[f"start.{name}"] = p.clone()
        p = p.double().requires_grad_()
        # Its second epsilon stands above the size of any parameter, and its cap of the rate above 0.01.
        optimizer = torch.optim.Adafactor([p], lr=1e-2, beta2_decay=-0.8, eps=(None, 1.0), d=1.0, weight_decay=0.1)
        for step in range(1, 7):
            g = torch.randn(shape, generator=generator) * (10.0 ** step if step % 3 == 0 else 1.0)
            out[f"grad.{name}.{step}"] = g
            p.grad = g.double() * 0.25
            optimizer.step()
        out[f"param.{name}"] = p.detach().clone()
        for key, value in optimizer.state[p].items():
            if key != "step":
                out[f"{key}.{name}"] = value
    return out


def to_bytes(tensors):
    names = {torch.float32: "F32", torch.float64: "F64", torch.uint8: "U8", torch.int16: "I16"}
    header, data = {}, b""
    for name, t in tensors.items():
        raw = bytes(t.contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    for name, make in {"nf4": nf4, "adamw8bit": adamw8bit, "adafactor": adafactor}.items():
        path, made = HERE / f"{name}.safetensors", to_bytes(make())
        if "--check" not in sys.argv:
            path.write_bytes(made)
        elif path.read_bytes() != made:
            sys.exit(f"{path} is not what generate.py makes")


main()
