"""Claims about concept-level backdoors: what a trigger achieves, whether it is seen, what mends it, whether pixels can make it."""

from querist.claims.concepts import attacks, defences, stealth

__all__ = ["CLAIMS"]

CLAIMS = (*attacks.ATTACKS[:-1], *stealth.STEALTH, *defences.DEFENCES, *attacks.ATTACKS[-1:])
