"""Studies, the run folders they leave, and the engines that carry out their units."""
