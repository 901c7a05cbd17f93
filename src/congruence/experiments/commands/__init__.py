"""The commands of the experiments: `data`, `train`, `reproduce` and `demo`."""
