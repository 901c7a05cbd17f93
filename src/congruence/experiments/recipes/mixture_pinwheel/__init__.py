"""The recipe `mixture-pinwheel`: VaDEs on a pinwheel."""
