"""One engine for rows: chunks, devices, moments and cross products over numpy, torch and dask."""
