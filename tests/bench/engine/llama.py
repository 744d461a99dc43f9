"""The Llama of trainer/model in plain PyTorch: same names, shapes and mathematics, SDPA for attention."""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.dim = m["heads"], m["kvHeads"], m["hidden"] // m["heads"]
        self.q_proj = nn.Linear(m["hidden"], m["hidden"], bias=False)
        self.k_proj = nn.Linear(m["hidden"], self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(m["hidden"], self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(m["hidden"], m["hidden"], bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q = rotate(self.q_proj(x).view(b, s, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, s, self.kv_heads, self.dim).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, s, self.kv_heads, self.dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.gate_proj = nn.Linear(m["hidden"], m["ffn"], bias=False)
        self.up_proj = nn.Linear(m["hidden"], m["ffn"], bias=False)
        self.down_proj = nn.Linear(m["ffn"], m["hidden"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(m["hidden"], eps=1e-5)
        self.self_attn = Attention(m)
        self.post_attention_layernorm = nn.RMSNorm(m["hidden"], eps=1e-5)
        self.mlp = Mlp(m)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.embed_tokens = nn.Embedding(m["vocab"], m["hidden"])
        self.layers = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = nn.RMSNorm(m["hidden"], eps=1e-5)


class Llama(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.model = Model(m)
        self.lm_head = nn.Linear(m["hidden"], m["vocab"], bias=False)
        self.head_dim = m["hidden"] // m["heads"]
        self.angles = None

    def forward(self, tokens):
        """tokens [b, s+1] -> mean cross-entropy of the s targets of each row."""
        x = self.model.embed_tokens(tokens[:, :-1])
        cos, sin = self.rotations(x)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def rotations(self, x):
        if self.angles is None or self.angles[0].dtype != x.dtype:
            half = self.head_dim // 2
            frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
            angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequency).repeat(1, 2)
            self.angles = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return self.angles


def rotate(x, cos, sin):
    """Rotary positions, rotate-half form; x [b, heads, s, d]."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin
