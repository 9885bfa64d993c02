"""Activations of a network by layer name, batch by batch, whatever form the network comes in."""

from querist.sources.taps.sites import LAYER_WORDS, Network, Site, Survey
from querist.sources.taps.tap import Tap

__all__ = ["LAYER_WORDS", "Network", "Site", "Survey", "Tap"]
