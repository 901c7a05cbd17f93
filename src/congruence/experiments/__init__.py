"""Reproduce the papers' experiments: data sets, models, training and one recipe per result.

`data` makes or reads the data, `models` holds the architectures, `training` the training loop, `recipes` one folder
per table or figure, and `commands` the four commands `data`, `train`, `reproduce` and `demo`. The rest of the package
never imports this one.
"""
