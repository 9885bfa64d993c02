"""The study of the claims about concept-level backdoors."""

from __future__ import annotations

from collections.abc import Mapping

from querist.claims.concepts import CLAIMS
from querist.claims.concepts.family import head_tables
from querist.claims.configs import ClaimsConfig
from querist.claims.study import ClaimsStudy

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'concepts.*'`."""

    room = "concepts"
    claims = CLAIMS

    def inputs(self, config: ClaimsConfig) -> Mapping[str, str]:
        """Content hashes of the tables as well: which of them are read depends on what is here."""
        from querist.files import fingerprint
        from querist.sources.datasets.registry import locate

        sizes = [claim.sizes[config.size] for claim in self.chosen(config)]
        names = sorted({name for size in sizes if "table_targets" in size.numbers for name in head_tables(size)})
        return {**super().inputs(config), **{name: fingerprint(locate(name)) for name in names}}
