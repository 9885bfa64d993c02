"""A row's own head by itself gives what all heads side by side give for it, values and gradients."""

import pytest
import torch

from querist.effects.baselines._layers import Tower


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("present", [(0, 1, 2), (0, 2), (1,)])
def test_own_head_alone_equals_the_choice_among_all(present, last):
    torch.manual_seed(0)
    tower = Tower(3, 5, 7, 4, 2, last=last).double()
    group = torch.tensor(present)[torch.randint(len(present), (40,))]
    x = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)
    chosen = tower(x)[group, torch.arange(40)]
    alone = tower.own(x, group)
    torch.testing.assert_close(alone, chosen, rtol=1e-12, atol=1e-14)
    weight = torch.randn(40, 2, dtype=torch.float64)
    wanted = [x, *tower.parameters()]
    given = (torch.autograd.grad((made * weight).sum(), wanted) for made in (alone, chosen))
    for one, other in zip(*given, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
