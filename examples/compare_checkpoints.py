"""Three ways to have tuned one network, compared with it: saved again, low-rank training, an adapter that is not merged.

python examples/compare_checkpoints.py          # prints what each change was; writes nothing
python examples/compare_checkpoints.py runs/lo  # also a run folder with a report of the low-rank change
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from querist.weights import Comparison, compare


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 16))


def trained(model: nn.Module, steps: int = 400) -> nn.Module:
    """The network after learning a function of three directions of its input."""
    torch.manual_seed(1)
    inputs = torch.randn(2048, 64)
    targets = torch.tanh(inputs[:, :3] @ torch.randn(3, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model


def adapter(model: nn.Module, rank: int = 4) -> dict[str, torch.Tensor]:
    """A low-rank update of the middle layer along its own leading directions, named as PEFT names it."""
    U, S, Vh = torch.linalg.svd(model[2].weight.detach(), full_matrices=False)
    return {"2.lora_A.weight": Vh[:rank].clone(), "2.lora_B.weight": 0.5 * U[:, :rank] * S[:rank]}


def tell(name: str, result: Comparison) -> None:
    print(f"\n{name}")
    for finding in result.findings:
        print(f"  {finding.subject:<10} {finding.question:<16} {finding.verdict:<10} {finding.because}")


def main(out: str | None = None) -> dict[str, Comparison]:
    base = network().state_dict()
    tuned = trained(network())
    results = {
        "Saved again in bfloat16": compare(base, {name: value.bfloat16() for name, value in base.items()}),
        "Trained": compare(base, tuned, k=8, out=out),
        "An adapter": compare(base, adapter(network()), k=8, lora_alpha=4),
    }
    for name, result in results.items():
        tell(name, result)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])
