"""Tables of people, arms and outcomes: those that are registered with their checksum, and those a user must bring."""

from __future__ import annotations

__all__ = ["BROUGHT", "CRITEO_SHA256", "EXPERIMENTS"]

CRITEO_SHA256 = "e4d7c710ca1f38e523309d0f8a0745d1b53e7392d51f20d1088b6cfeaef222ef"
"""Of `criteo-uplift-v2.1.csv`, unpacked."""

_CAUSALDATA = "MIT (package causaldata 0.1.5)"

EXPERIMENTS: tuple[tuple[str, str, str, int, str, str | None], ...] = (
    (
        "hillstrom",
        "MineThatData e-mail challenge (Hillstrom 2008): 64,000 customers, 2 mailings beside none, at random; visit, conversion, spend.",
        "no formal licence; published openly by its author as a challenge",
        355_733,
        "7a482a4657f726ce546725543adfc11287c6fe98e96c029b279b0dbe57863c05",
        "hillstrom.parquet",
    ),
    (
        "nsw_mixtape",
        "National Supported Work demonstration (LaLonde 1986; Dehejia & Wahba 1999): 445 men, training at random; earnings re78.",
        _CAUSALDATA,
        10_442,
        "081a21e2514d4f01ad69cf15f95dbae6d5ede7bdde82c14e05f787965261119b",
        "nsw_mixtape.parquet",
    ),
    (
        "cps_mixtape",
        "Current Population Survey: 15,992 men without training, the observational comparison of nsw_mixtape.",
        _CAUSALDATA,
        178_412,
        "7df60c3ce5b3444c778dcfea2baf094ffdfe17ea45334a6102db9493c6917e4f",
        "cps_mixtape.parquet",
    ),
    (
        "thornton_hiv",
        "HIV results in Malawi (Thornton 2008): 4,820 people, a graded incentive tinc at random, villages villnum; result fetched or not.",
        _CAUSALDATA,
        30_163,
        "e84bf67484be8436308580c4d17ddab1054cbe4ea5a2c2824b31c99e24ea9430",
        "thornton_hiv.parquet",
    ),
    (
        "social_pressure",
        "Social pressure and turnout (Gerber, Green & Larimer 2008): 344,084 voters, 4 letters beside none, by household hh_id; voted.",
        "none stated; public replication data",
        1_643_807,
        "e591a9cf38b40344a4c5072c48c5b1c99eca4bca83e6b2b42acf4e5e368279ce",
        None,
    ),
    (
        "starbucks_promotion",
        "Starbucks promotion: 126,184 customers, a promotion at random, a purchase of 0.7 against 1.7 in a hundred.",
        "none stated; a hiring exercise released through Udacity",
        1_592_052,
        "5c652ef4138f89087bbf2276031a4588266326cf86e9296ed7e8a9e515cd520d",
        None,
    ),
    (
        "ihdp_npci_1_10",
        "Infant Health and Development Program with simulated outcomes (Hill 2011): 10 replications of 747 children, both means known.",
        "none stated",
        274_674,
        "56826191c1b8da59c18b91b8239e158a6cca2ca08533455e5d69dc7e908cd809",
        None,
    ),
    (
        "twins_ganite",
        "Twins: 11,400 pairs with both outcomes, days to death capped at 9999 (names of columns keep their quotes).",
        "none stated; linked birth and death records of the United States",
        84_756,
        "a4ea37048e35327f228c3a5e5219bec3fbd4f5093a08b65d8f7ce2a8da1745c9",
        None,
    ),
)
"""Name, what it is, licence, bytes, checksum, the bundled file or None."""

BROUGHT: tuple[tuple[str, str, str, str | None, str], ...] = (
    (
        "criteo-uplift-v2.1",
        "Criteo uplift v2.1 (Diemert et al. 2018): 13,979,592 users, 85 in 100 shown advertising; visit, conversion; unpacked CSV.",
        "CC-BY-NC-SA-4.0, as its publisher states",
        CRITEO_SHA256,
        "criteo-uplift-v2.1.csv",
    ),
    (
        "mt-lift",
        "MT-LIFT, coupons of several amounts beside none at random; click and conversion.",
        "as its publisher states",
        None,
        "mt-lift.csv",
    ),
    (
        "lazada",
        "Lazada vouchers (the data of DESCN): training rows are not randomised, test rows are; purchase.",
        "as its publisher states",
        None,
        "lazada.csv",
    ),
    (
        "lenta",
        "Lenta text messages of a grocer: control and test group, response.",
        "as its publisher states",
        None,
        "lenta.csv",
    ),
    (
        "x5",
        "X5 RetailHero, messages of a grocer: clients joined with treatment and purchase.",
        "as its publisher states",
        None,
        "x5.csv",
    ),
    (
        "megafon",
        "MegaFon uplift competition, a telecommunications offer: control and treatment, conversion.",
        "as its publisher states",
        None,
        "megafon.csv",
    ),
)
"""Name, what it is, licence, checksum where one is published, the file's name below QUERIST_DATA/effects."""
