"""Claims about spectra of weights: where tails come from, what one step does, what tails say, what is made of them."""

from querist.claims.weights import advice, farms, spikes, tails

__all__ = ["CLAIMS"]

CLAIMS = (*tails.TAILS[:1], *spikes.SPIKES[:2], *tails.TAILS[1:], *spikes.SPIKES[2:], *farms.FARMS, *advice.ADVICE)
