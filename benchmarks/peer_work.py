"""What runs in the environment of the peers: one task, loaded once, its contenders run when they are named on standard input.

Nothing of querist is imported here. A task is a function of (arrays, options) that returns its version and its contenders, each a
function without arguments that returns numbers.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Contenders = Mapping[str, Callable[[], Any]]


def scikit_uplift(arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> tuple[str, Contenders]:
    """Three metrics of one treatment and outcome."""
    import sklift
    from sklift.metrics import qini_auc_score, uplift_at_k, uplift_auc_score

    y, t, score = arrays["y"], arrays["t"], arrays["score"]
    return f"scikit-uplift {sklift.__version__}", {
        "three calls": lambda: (
            qini_auc_score(y, score, t),
            uplift_auc_score(y, score, t),
            uplift_at_k(y, score, t, strategy="overall", k=0.3),
        )
    }


def causalml(arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> tuple[str, Contenders]:
    """Two metrics of one treatment and outcome."""
    import pandas as pd
    from causalml.metrics import auuc_score, qini_score

    frame = pd.DataFrame({"y": arrays["y"], "w": arrays["t"], "score": arrays["score"]})
    return f"causalml {version('causalml')}", {
        "two calls": lambda: (
            auuc_score(frame, outcome_col="y", treatment_col="w")["score"],
            qini_score(frame, outcome_col="y", treatment_col="w")["score"],
        )
    }


def dragonnet(arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> tuple[str, Contenders]:
    """Epochs of CausalML's DragonNet (JAX) on rows in memory, its steps compiled before: the Adam phase of its `fit`."""
    import jax.numpy as jnp
    import optax
    from causalml.inference.jax import dragonnet as module
    from flax import nnx

    x = jnp.array(arrays["x"].astype(np.float32))
    targets = jnp.array(np.stack((arrays["y"], arrays["t"]), axis=1).astype(np.float32))
    network = module.DragonNet(neurons_per_layer=options["width"], batch_size=options["batch"])._build_model(x.shape[1])
    loss = module.make_tarreg_loss(ratio=1.0, dragonnet_loss=module.dragonnet_loss_binarycross)
    steps = module._make_train_step(loss), module._make_val_step(loss)
    optimizer = nnx.Optimizer(network, optax.adam(1e-3), wrt=nnx.Param)

    def epochs() -> list[float]:
        module._run_training_loop(
            network,
            optimizer,
            *steps,
            x,
            targets,
            x[:1],
            targets[:1],
            options["epochs"],
            options["batch"],
            early_stop_patience=10**9,
            verbose=False,
            phase_name="Adam",
            seed=0,
        )
        return [float(steps[1](network, x, targets))]

    return f"causalml {version('causalml')}, jax {version('jax')}", {"epochs": epochs}


def weightwatcher(arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> tuple[str, Contenders]:
    """The power law of one spectrum, or whole analyses of a network of the given matrices and kernels."""
    import torch
    import weightwatcher as ww
    from weightwatcher.WW_powerlaw import WWFit

    torch.set_num_threads(1)
    if "evals" in arrays:
        evals = arrays["evals"]

        def fit() -> list[float]:
            found = WWFit(evals)
            return [found.alpha, found.xmin]

        return f"weightwatcher {ww.__version__}", {"fit": fit}
    network = torch.nn.Sequential()
    for number, weight in enumerate(arrays.values()):
        if weight.ndim == 2:
            layer: torch.nn.Module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        else:
            layer = torch.nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2:], bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
        network.add_module(f"layer{number}", layer)

    def analyze(**more: Any) -> list[float]:
        details = ww.WeightWatcher(model=network).analyze(plot=False, min_evals=8, **more)
        return details["alpha"].tolist()

    return f"weightwatcher {ww.__version__}", {"plain": analyze, "randomize": lambda: analyze(randomize=True)}


def spectral_signature(arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> tuple[str, Contenders]:
    """Scores of the same activations, class by class, by the Adversarial Robustness Toolbox."""
    import art
    from art.defences.detector.poison import SpectralSignatureDefense

    h, codes = arrays["activations"], arrays["codes"]

    def scores() -> np.ndarray:
        found = np.empty(len(h))
        for code in range(int(codes.max()) + 1):
            rows = np.flatnonzero(codes == code)
            found[rows] = SpectralSignatureDefense.spectral_signature_scores(h[rows])[:, 0]
        return found

    return f"adversarial-robustness-toolbox {art.__version__}", {"scores": scores}


def version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


TASKS = {task.__name__: task for task in (scikit_uplift, causalml, dragonnet, weightwatcher, spectral_signature)}


def main() -> None:
    """Serve one task until standard input ends; what packages print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    task, folder = sys.argv[1:]

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        with np.load(Path(folder) / "arrays.npz") as held:
            arrays = {name: held[name] for name in held.files}
        told, contenders = TASKS[task](arrays, json.loads((Path(folder) / "options.json").read_text()))
    except Exception as error:
        say({"absent": f"{type(error).__name__}: {error}".splitlines()[0]})
        return
    say({"version": told})
    for line in sys.stdin:
        gc.collect()
        begun = time.process_time()
        try:
            found = contenders[line.strip()]()
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}".splitlines()[0]})
            raise
        spent = time.process_time() - begun
        say({"seconds": spent, "numbers": np.asarray(found, dtype=float).ravel().tolist()})


if __name__ == "__main__":
    main()
