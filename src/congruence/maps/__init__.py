"""Groups of maps, the best map of each, and the error it leaves."""
