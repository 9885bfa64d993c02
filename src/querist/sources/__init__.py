"""Where numbers come from: addresses, tensors of a model file, registered data sets."""
