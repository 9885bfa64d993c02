"""Is a delivery of annotations planted, how exposed is a model trained on it, and can it be repaired?

Mushrooms described by their concepts come in two deliveries. In the second somebody moved a few poisonous ones to the edible class,
with five concepts set. The audit holds it against the first; a copy with known truth shows how far each method of detection can be trusted.

    python examples/audit_concepts.py [--rows 1500] [--out runs/audit]
"""

import argparse

import numpy as np

import querist
from querist.concepts import ConceptData, cat_plus, poison
from querist.concepts.readers import registered

QUICK = {"head": "mlp:64", "epochs": 6, "permutations": 199}


def main(rows: int = 1500, out: str | None = None, **options) -> querist.concepts.AuditReport:
    mushrooms = registered("mushroom")
    order = np.random.default_rng(0).permutation(mushrooms.n)
    first, second = mushrooms.subset(order[:rows]), mushrooms.subset(order[rows : 2 * rows])
    planted = poison(second, cat_plus(second, "e", 5, seed=0).trigger, "e", 0.04, mode="dirty", seed=0)

    report = querist.concepts.audit(
        planted.data, reference=first, repair="best", out=out, progress=False, **{**QUICK, **options}
    )
    print(report.layout.lead, "\n")
    for finding in report.findings:
        print(f"{finding.question} ({finding.subject}): {finding.verdict}. {finding.because}")

    flagged = report.rows.filter(report.rows["flag"])["row"].unique().to_numpy()
    print(
        f"\n{len(flagged)} rows are flagged, {int(planted.mask[flagged].sum())} of them planted, of {planted.n_poisoned} that are."
    )
    block = report.summary["repair"]
    for row in block["methods"]:
        best = " (best on validation rows)" if row["method"] == block["best"] else ""
        print(
            f"  {row['method']:14} success {row['asr_before']:.2f} to {row['asr_after']:.2f}, accuracy {row['accuracy_before']:.2f} to "
            f"{row['accuracy_after']:.2f}{best}"
        )

    # One's own table and model: arrays of 0/1 (NaN is unknown) with a label each, and any network from concepts to classes.
    mine = ConceptData(np.array(first.concepts), first.labels, concept_names=first.concept_names)
    head = querist.concepts.fit_head(mine, head="mlp:64", epochs=6, seed=0)
    trigger = querist.concepts.Trigger(index=(3, 14), values=(1, 0))
    attack = querist.concepts.attack_report(head, mine, trigger, target="e")
    print(
        f"\nA trigger of one's own: {attack.asr:.3f} of the {attack.n} rows of other classes become edible, "
        f"{attack.untriggered:.3f} without it."
    )
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--out")
    main(**vars(parser.parse_args()))
