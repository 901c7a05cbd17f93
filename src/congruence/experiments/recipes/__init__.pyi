from congruence.experiments.recipes._demo import demo as demo
from congruence.experiments.recipes._reproduce import reproduce as reproduce
from congruence.experiments.recipes.recipe import RECIPES as RECIPES
from congruence.experiments.recipes.recipe import SCALES as SCALES
from congruence.experiments.recipes.recipe import Recipe as Recipe
from congruence.experiments.recipes.recipe import find_recipe as find_recipe
from congruence.experiments.recipes.result import RecipeResult as RecipeResult
