from congruence.reproduce._demo import demo as demo
from congruence.reproduce._reproduce import reproduce as reproduce
from congruence.reproduce.recipe import RECIPES as RECIPES
from congruence.reproduce.recipe import SCALES as SCALES
from congruence.reproduce.recipe import Recipe as Recipe
from congruence.reproduce.recipe import find_recipe as find_recipe
from congruence.reproduce.result import RecipeResult as RecipeResult
