"""The recipe `statistical-versus-structural`: models that are stable across trainings and not the truth."""
