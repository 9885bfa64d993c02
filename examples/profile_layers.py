"""Where does a frozen network stop seeing new pictures as it sees those it knows, and does that tell how well it serves them?

A ResNet20 trained on CIFAR-10 looks at clothes it is used to, at other clothes, and at handwritten digits. Each layer's
distance stands beside that between two parts of the known pictures, and beside what a linear probe and depth alone say.

    python examples/profile_layers.py [--n 400] [--random-nets 19] [--out runs/profile]
"""

import argparse

import querist

NET = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
PICTURES = {"size": 32, "channels": 3, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def main(n: int = 400, random_nets: int = 0, out: str | None = None, **options) -> querist.features.Comparison:
    result = querist.features.compare(
        NET,
        source="fashion-mnist-small#train",
        target=["fashion-mnist-small#test", "digits"],
        layers="blocks",
        n=n,
        random_nets=random_nets,
        class_gaps=False,
        out=out,
        progress=False,
        **PICTURES,
        **options,
    )
    print(f"{result.summary['warning']}\n")
    for target in result.config["target"]:
        print(f"{target}\n  {'layer':10}  distance   null    excess      interval       p_adj  probe")
        for row in result.table.filter(result.table["target"] == target).to_dicts():
            print(
                f"  {row['layer']:10} {row['raw']:9.3f} {row['null_mean']:7.3f} {row['excess']:8.3f}   {row['low']:5.3f} to"
                f" {row['high']:5.3f} {row['p_adj']:9.3f} {row['probe_accuracy']:6.2f}"
            )
    print()
    for finding in result.findings:
        if finding.question != "features.gap":
            print(f"{finding.question} ({finding.subject}): {finding.verdict}. {finding.because}")

    # The same distance of arrays of one's own: the rows of a layer, normalised by the source alone.
    net = querist.features.nets.cifar_resnet(20)
    pixels = querist.features.capture(net, _noise(64), layers="layer1.0", seed=1)["layer1.0"].rows
    other = querist.features.capture(net, _noise(64) + 1, layers="layer1.0", seed=1)["layer1.0"].rows
    gap = querist.features.sliced_wasserstein(pixels, other)
    print(
        f"\nNoise, and brighter noise, at layer1.0 of a random network: {gap.value:.3g} ± {gap.mc_se:.1g} over directions."
    )
    return result


def _noise(n: int):
    import torch

    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--random-nets", type=int, default=0)
    parser.add_argument("--out")
    main(**vars(parser.parse_args()))
