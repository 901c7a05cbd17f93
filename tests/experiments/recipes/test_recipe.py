import pytest

from congruence.errors import InputError
from congruence.experiments.recipes import RECIPES, SCALES, find_recipe


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_can_be_loaded_and_has_parameters_for_every_scale(recipe):
    method = recipe.method()
    assert set(method.PARAMETERS) == set(SCALES)
    assert method.EDITION >= 1
    assert callable(method.compute)
    assert callable(method.present)
    assert recipe.question.endswith("?")
    assert recipe.sentence.endswith(".")


def test_names_are_unique():
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES)


@pytest.mark.parametrize("name", ["statistical", "statistical-vs-structural", "structural"])
def test_a_name_that_is_not_there_is_refused_with_one_that_is_near(name):
    with pytest.raises(InputError, match=f"no recipe '{name}'; did you mean statistical-versus-structural"):
        find_recipe(name)


@pytest.mark.parametrize("name", ["zzz", ""])
def test_a_name_near_to_none_is_refused_with_all_of_them(name):
    with pytest.raises(InputError, match="there are statistical-versus-structural"):
        find_recipe(name)
