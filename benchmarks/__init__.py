"""Speed and memory, printed as figures and as ratios to a yardstick measured in the same run. Nothing here asserts."""
