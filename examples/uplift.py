"""Who should get which of two e-mails? The quick start of `querist.effects`, on a published experiment with two arms and a control.

Check the table, fit on one half, judge on the other: effects on average, whether the model beats ranking people by what they do
anyway, and whether following it beats the best single e-mail for all.

    python examples/uplift.py [--n 64000] [--epochs 8]
"""

import argparse

import polars as pl

from querist import effects
from querist.sources.rows import open_rows

FEATURES = ["recency", "history", "mens", "womens", "zip_code", "newbie", "channel"]
CONTROL = "No E-Mail"
OUTCOMES = {"visit": "binary", "spend": "hurdle"}


def main(n: int = 64_000, epochs: int = 8, bootstrap: int = 50) -> effects.Evaluation:
    table = pl.from_arrow(open_rows("hillstrom").table())
    return ask(table.sample(n, seed=0, shuffle=True), epochs, bootstrap)


def ask(people: pl.DataFrame, epochs: int, bootstrap: int) -> effects.Evaluation:
    X, arm, Y = people.select(FEATURES), people["segment"], people.select(list(OUTCOMES))
    half = len(people) // 2

    # 1. Can the arms be compared at all?
    thirds = dict.fromkeys(arm.unique().to_list(), 1 / 3)
    for finding in effects.check(X, arm, control=CONTROL, Y=Y, design=thirds).findings:
        print(f"{finding.question} ({finding.subject}): {finding.verdict}. {finding.because}")

    # 2. Fit on one half. `predict` has no way to be told the arm that a person was given.
    model = effects.MTMT(control=CONTROL, outcomes=OUTCOMES, preset="small", epochs=epochs)
    model.fit(X[:half], arm[:half], Y[:half])
    told = model.predict_effects(X[half:])
    print(f"\n{'':22}" + "".join(f"{name:>12}" for name in OUTCOMES))
    print(f"{'natural response':22}" + "".join(f"{value:12.4f}" for value in told.natural.mean(0)))
    print(f"{'base effect':22}" + "".join(f"{value:12.4f}" for value in told.base.mean(0)))
    for m, name in enumerate(model.arms_):
        print(f"  {name + ' adds':20}" + "".join(f"{value:12.4f}" for value in told.incremental[:, m].mean(0)))

    # 3. Judge on the other half, beside simpler models and the references that are always there.
    plain = effects.TLearner(control=CONTROL, outcomes=OUTCOMES).fit(X[:half], arm[:half], Y[:half])
    found = effects.evaluate(
        {"MTMT": told, "T-learner": plain.predict_effects(X[half:])},
        arm[half:],
        Y[half:],
        control=CONTROL,
        outcomes=OUTCOMES,
        bootstrap=bootstrap,
    )
    qini = (pl.col("metric") == "qini") & (pl.col("convention") == "rate") & (pl.col("component") == "total")
    print("\nqini per person, 0 for a random order")
    for row in found.metrics.filter(qini & (pl.col("score") != "random") & pl.col("low").is_not_null()).to_dicts():
        bounds = f"[{row['low']:+.4f}, {row['high']:+.4f}]"
        print(f"  {row['outcome']:6} {row['arm']:14} {row['score']:17} {row['estimate']:+.4f} {bounds}")

    print("\nworth of following a model beside the best single e-mail for all")
    pairs = found.policies.filter((pl.col("versus").str.starts_with("best single arm")) & (pl.col("method") == "dr"))
    for row in pairs.drop_nulls("difference_low").to_dicts():
        bounds = f"[{row['difference_low']:+.4f}, {row['difference_high']:+.4f}]"
        print(f"  {row['outcome']:6} {row['policy']:17} {row['difference']:+.4f} {bounds}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64_000)
    parser.add_argument("--epochs", type=int, default=8)
    main(**vars(parser.parse_args()))
