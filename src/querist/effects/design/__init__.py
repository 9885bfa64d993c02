"""What the design of a study gives: propensities, effect scores, randomisation, overlap, power."""
