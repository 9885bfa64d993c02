"""Every Python block of the README and of the docs runs, page by page, in an interpreter that has imported nothing before."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness import PATIENCE

from querist.cli import ROOMS

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

NET = """
import torch
net = model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
rng = torch.Generator().manual_seed(0)
X, X2 = torch.rand(160, 1, 8, 8, generator=rng), torch.rand(160, 1, 8, 8, generator=rng)
y, y2 = torch.arange(160) % 4, torch.arange(160) % 4
"""
GIVEN = {
    "README.md": NET,
    "docs/concepts.md": """
import numpy as np
import querist
rng = np.random.default_rng(0)
concepts, labels = (rng.random((240, 6)) < .4).astype(float), np.arange(240) % 3
names = [f"c{i}" for i in range(6)]
trusted = querist.concepts.ConceptData((rng.random((120, 6)) < .4).astype(float), np.arange(120) % 3, concept_names=names)
""",
    "docs/effects.md": "",
    "docs/features.md": NET + "import querist\n",
    "docs/training.md": "",
    "docs/weights.md": NET
    + """
import querist
torch.save({k: v + .1 * torch.randn(v.shape) for k, v in model.state_dict().items()}, "tuned.pt")
scan = querist.weights.scan(model)
W = torch.randn(120, 80)
h, d = W.shape
change_per_unit_of_rate = torch.outer(torch.randn(h), torch.randn(d)) / 10
batches = range(4)
""",
}
"""What a page's reader has at hand: the page's blocks go on from here."""
SMALLER = {
    "docs/concepts.md": [('budget="full"', 'budget="fast", targets="2", epochs=1, sizes=(2,), selectors=("cat",)')],
    "docs/effects.md": [("[:12_000]", "[:2_000]"), ("6000", "1000")],
    "docs/features.md": [
        ("random_nets=19", "random_nets=1, permutations=19"),
        (
            'target="fashion-mnist-small#train"',
            'target="fashion-mnist-small#train", n=120, permutations=9, layers="logits"',
        ),
        ("train_n=600", 'train_n=64, test_n=48, n=48, ks=("0", "9"), arms=("pretrained", "random")'),
        ("repeats=2", "repeats=1"),
        ("epochs=3", "epochs=1"),
    ],
}
"""A page's own numbers, cut down to what a test may take; each must be there to be cut."""
ELSEWHERE = {"docs/training.md": "train.py"}
"""Blocks that are files of their own, by what they hold: the tests of the thing they show run them."""


def program(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "\n".join(block for block in BLOCK.findall(text) if ELSEWHERE.get(page, "\0") not in block)
    for old, new in SMALLER.get(page, ()):
        assert old in code, f"{page} no longer says {old}"
        code = code.replace(old, new)
    return GIVEN[page] + code


def fresh(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, cwd=folder, check=False
    )


@pytest.mark.parametrize("page", sorted(GIVEN))
def test_what_a_page_shows_runs(page, tmp_path):
    done = fresh(program(page), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_page_with_python_is_left_out():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = {path.relative_to(ROOT).as_posix() for path in pages if BLOCK.search(path.read_text(encoding="utf-8"))}
    assert shown == set(GIVEN)


def test_every_room_is_there_once_querist_is_imported(tmp_path):
    done = fresh(f"import querist\nprint(*[getattr(querist, room).__name__ for room in {sorted(ROOMS)}])", tmp_path)
    assert done.stdout.split() == [f"querist.{room}" for room in sorted(ROOMS)], done.stderr
    assert set(ROOMS) <= set(__import__("querist").__all__)
