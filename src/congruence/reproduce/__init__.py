"""Can I see the papers' results with my own eyes? One recipe for each table, figure or example of the papers.

`recipe.py` lists the recipes and says what one is, `perform.py` runs one in a folder, `parts.py` keeps what was already
computed, `write.py` writes the files; every other file is a recipe. Nothing imports this room but the command line.
"""
