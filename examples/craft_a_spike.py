"""At which learning rate does one step put a spike into a layer's spectrum, and does it point at what is to be learned?

Theory names the rate before anything is trained. This script trains small networks below and above it, prints what the
spectra did beside what theory said, then asks the same of a matrix and an update of one's own.

    python examples/craft_a_spike.py [--d 200] [--repeats 5] [--out runs/spike]
"""

import argparse

import torch

import querist


def main(d: int = 200, repeats: int = 5, out: str | None = None) -> querist.weights.Trajectory:
    h, n = 3 * d // 2, 2 * d
    critical = querist.weights.predict_spike(h, d, n, "adam", 1.0).eta_critical
    print(f"{h} x {d} weights, {n} examples: Adam's first step makes a spike from rate {critical:.3g} on")

    rates = [float(f"{times * critical:.3g}") for times in (0.5, 1.5, 2.0, 4.0)]
    result = querist.weights.craft(
        d=d, h=h, n=n, optimizer="adam", eta=rates, steps=5, repeats=repeats, overlaps=True, out=out, progress=False
    )

    print("\n    rate   λ₁ told    λ₁ seen   aligned: told   seen   regime")
    for row in result.summary["predicted"]:
        print(
            f"{row['eta']:8.3g} {row['lambda_predicted']:9.0f} {row['lambda_observed']:10.0f}"
            f" {row['sim_predicted']:15.2f} {row['sim_observed']:6.2f}   {row['regime']}"
        )
    chance = result.steps["sim_null"][0]
    print(f"A direction that knows nothing of the teacher aligns by more than {chance:.2f} once in a hundred.\n")

    for finding in result.findings:
        if finding.question in ("weights.regime", "weights.spikes"):
            print(f"{finding.subject}, {finding.question}: {finding.verdict}. {finding.because}")

    # The same question of any layer: W as it stands, and the change of W per unit of rate.
    generator = torch.Generator().manual_seed(0)
    W = 0.02 * torch.randn(h, d, generator=generator)
    step = torch.outer(torch.ones(h), torch.randn(d, generator=generator)) / h
    told = querist.weights.predict_spike(h, d, eta=1.0, weight=W, update=step)
    print(f"\nA layer of one's own: a spike from rate {told.eta_critical:.3g} on; at rate 1 {told.regime}.")
    top = float(torch.linalg.matrix_norm(W + step, 2)) ** 2
    print(f"Largest eigenvalue {told.lambda_predicted:.4g} by theory, {top:.4g} in fact.")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    main(**vars(parser.parse_args()))
