"""Claims about latent laws: what layers do to data they know and do not know, and what frozen layers are worth."""

from querist.claims.features import freezing, laws

__all__ = ["CLAIMS"]

CLAIMS = (*laws.LAWS[:2], *freezing.FREEZING, *laws.LAWS[2:])
