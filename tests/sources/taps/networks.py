"""Small networks of every awkward kind, each with a forward pass written out by hand that returns what must be captured."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class InPlace(nn.Module):
    """The activation overwrites what it is given."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.act(self.conv(x)).mean((2, 3)))

    def by_hand(self, x):
        a = F.conv2d(x, self.conv.weight, self.conv.bias, padding=1)
        return {"act": a, "logits": F.linear(a.clamp(min=0).mean((2, 3)), self.fc.weight, self.fc.bias)}


class Functional(nn.Module):
    """Activations as functions and methods, in place and not, one of them of a residual sum."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        x = F.relu(self.a(x))
        x = F.gelu(self.b(x) + x)
        x = self.c(x).relu_()
        x = torch.tanh(self.d(x))
        return x.clamp(min=0) * x.clamp(max=1)

    def by_hand(self, x):
        a = F.linear(x, self.a.weight, self.a.bias)
        h = a.clamp(min=0)
        b = F.linear(h, self.b.weight, self.b.bias) + h
        h = b * 0.5 * (1 + torch.erf(b / 2**0.5))
        c = F.linear(h, self.c.weight, self.c.bias)
        d = F.linear(c.clamp(min=0), self.d.weight, self.d.bias)
        t = torch.tanh(d)
        return {"relu#1": a, "gelu": b, "relu#2": c, "tanh": d, "clamp": t, "logits": t.clamp(min=0) * t.clamp(max=1)}


class Residual(nn.Module):
    """A block whose last activation is of a sum, in a container of numbered blocks."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x):
            y = F.relu(self.bn(self.conv(x)))
            y += x
            return F.relu_(y)

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.layer1 = nn.Sequential(self.Block(), self.Block())
        self.fc = nn.Linear(4, 3)
        for block in self.layer1:
            nn.init.uniform_(block.bn.running_mean, -1, 1)
            nn.init.uniform_(block.bn.running_var, 0.5, 2)

    def forward(self, x):
        return self.fc(self.layer1(self.stem(x)).mean((2, 3)))

    def by_hand(self, x):
        x = F.conv2d(x, self.stem.weight, self.stem.bias)
        out = {}
        for place, block in enumerate(self.layer1):
            y = F.conv2d(x, block.conv.weight, block.conv.bias, padding=1)
            y = (y - block.bn.running_mean[:, None, None]) / (block.bn.running_var[:, None, None] + 1e-5).sqrt()
            y = y * block.bn.weight[:, None, None] + block.bn.bias[:, None, None]
            out[f"layer1.{place}.relu#1"] = y
            y = y.clamp(min=0) + x
            out[f"layer1.{place}.relu#2"] = y
            x = y.clamp(min=0)
        return out | {"logits": F.linear(x.mean((2, 3)), self.fc.weight, self.fc.bias)}


class Twice(nn.Module):
    """One activation module called twice, one linear module under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.again = self.first
        self.act = nn.SiLU()

    def forward(self, x):
        return self.again(self.act(self.first(self.act(self.first(x)))))

    def by_hand(self, x):
        one = F.linear(x, self.first.weight, self.first.bias)
        two = F.linear(one * one.sigmoid(), self.first.weight, self.first.bias)
        return {"act#1": one, "act#2": two, "logits": F.linear(two * two.sigmoid(), self.first.weight, self.first.bias)}


class Branch(nn.Module):
    """A branch that depends on the data: no trace of it exists."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.a(x)
        h = F.relu(h) if h.sum() > -1e9 else F.gelu(h)
        return torch.softmax(self.b(h), dim=1)

    def by_hand(self, x):
        a = F.linear(x, self.a.weight, self.a.bias)
        return {"relu": a, "logits": F.linear(a.clamp(min=0), self.b.weight, self.b.bias)}


class Several(nn.Module):
    """Modules that return tuples and dicts; an LSTM that puts time first; a dict at the end."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x):
            y = self.fc(x)
            return {"raw": y, "twice": (2 * y, y.sum())}

    def __init__(self):
        super().__init__()
        self.pair = self.Pair()
        self.lstm = nn.LSTM(3, 7)
        self.fc = nn.Linear(7, 4)

    def forward(self, x):
        y = self.pair(x)["twice"][0].reshape(len(x), 2, 3).transpose(0, 1)
        out, _ = self.lstm(y)
        return {"hidden": out, "logits": self.fc(out[-1])}

    def by_hand(self, x):
        raw = F.linear(x, self.pair.fc.weight, self.pair.fc.bias)
        h = c = torch.zeros(len(x), 7)
        steps = []
        for t in range(2):
            gates = (2 * raw).reshape(len(x), 2, 3)[:, t] @ self.lstm.weight_ih_l0.T + h @ self.lstm.weight_hh_l0.T
            i, f, g, o = (gates + self.lstm.bias_ih_l0 + self.lstm.bias_hh_l0).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            steps.append(h)
        logits = F.linear(h, self.fc.weight, self.fc.bias)
        return {"pair": raw, "pair:twice:0": 2 * raw, "lstm": torch.stack(steps, 1), "logits": logits}


class Masked(nn.Module):
    """Self-attention over tokens, some of them padding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, activation="gelu")

    def forward(self, input_ids, attention_mask):
        return self.encoder(self.embedding(input_ids), src_key_padding_mask=attention_mask == 0)

    def by_hand(self, input_ids, attention_mask):
        e, x = self.encoder, self.embedding.weight[input_ids]
        q, k, v = (x @ e.self_attn.in_proj_weight.T + e.self_attn.in_proj_bias).chunk(3, -1)

        def heads(t):
            return t.reshape(*t.shape[:2], 2, 4).transpose(1, 2)

        score = heads(q) @ heads(k).transpose(2, 3) / 2
        score = score.masked_fill(attention_mask[:, None, None] == 0, -torch.inf).softmax(-1)
        y = (score @ heads(v)).transpose(1, 2).reshape(x.shape)
        y = x + F.linear(y, e.self_attn.out_proj.weight, e.self_attn.out_proj.bias)
        y = F.layer_norm(y, (8,), e.norm1.weight, e.norm1.bias)
        a = F.linear(y, e.linear1.weight, e.linear1.bias)
        z = y + F.linear(a * 0.5 * (1 + torch.erf(a / 2**0.5)), e.linear2.weight, e.linear2.bias)
        return {"encoder.gelu": a, "logits": F.layer_norm(z, (8,), e.norm2.weight, e.norm2.bias)}


class Grown(nn.Module):
    """An activation written by hand inside a module named like one; a sigmoid at the end."""

    class NewGELU(nn.Module):
        def forward(self, x):
            return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    def __init__(self):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 1), self.NewGELU()

    def forward(self, x):
        return torch.sigmoid(self.b(self.act(self.a(x))))

    def by_hand(self, x):
        a = F.linear(x, self.a.weight, self.a.bias)
        return {"act": a, "logits": F.linear(self.act(a), self.b.weight, self.b.bias)}


PICTURES = {"InPlace": InPlace, "Residual": Residual}
VECTORS = {"Functional": (Functional, 6), "Twice": (Twice, 5), "Branch": (Branch, 4), "Grown": (Grown, 4)}
