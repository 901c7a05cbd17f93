"""Does a representation help downstream, across batches never seen?"""
