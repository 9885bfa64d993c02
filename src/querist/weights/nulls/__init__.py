"""What a spectrum would look like with nothing to find: random-matrix laws, resampled matrices, and the tests against them."""
