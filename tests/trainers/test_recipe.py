import pytest

from harness.errors import ConfigError, UsageError
from harness.models import model_names
from harness.paths import BASELINES
from trainers.recipe import RECIPES, load_recipe, recipe_names

NAMES = recipe_names()
GOOD = """
about = "a test"
base = "A"
makes = "B"
algorithm = "grpo"
reward = "railway"
[data]
source = "jsonl"
[hyper]
learning_rate = 1e-6
generations = 4
batch = 4
"""


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_reads_and_says_what_it_makes(name):
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.about and recipe.makes and recipe.tasks


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_starts_from_a_card_or_from_what_another_recipe_makes(name):
    makes = {load_recipe(n).makes for n in NAMES}
    assert load_recipe(name).base in makes | set(model_names(BASELINES))


def test_no_two_recipes_make_the_same_checkpoint():
    made = [load_recipe(n).makes for n in NAMES]
    assert len(made) == len(set(made))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("railway_sft", {"learning_rate": 1e-4, "epochs": 3.0}),
        ("railway_zero", {"learning_rate": 1e-6, "steps": 10, "generations": 4, "warmup": 0.0}),
        ("railway_sft_rl", {"learning_rate": 1e-6, "steps": 10, "generations": 4}),
        ("r1_searcher_qwen_stage2", {"learning_rate": 2e-6, "generations": 16, "beta": 0.0}),
        ("r1_searcher_llama_stage1", {"beta": 1e-4, "temperature": 1.0, "epochs": 1.0}),
        ("bookmark_grpo", {"generations": 8, "beta": 0.001}),
        ("korean_sft", {"learning_rate": 1e-5, "epochs": 3.0, "accumulation": 16, "warmup": 0.1}),
        ("korean_dr_grpo", {"learning_rate": 1e-6, "generations": 12, "beta": 0.0, "steps": 1000}),
    ],
)
def test_published_hyper_parameters_stand_as_published(name, wanted):
    hyper = load_recipe(name).hyper
    assert {key: getattr(hyper, key) for key in wanted} == wanted


def test_r1_searcher_takes_256_rollouts_a_step():
    hyper = load_recipe("r1_searcher_qwen_stage1").hyper
    assert hyper.batch * hyper.accumulation == 256


def test_an_unknown_recipe_is_told_the_nearest_names():
    with pytest.raises(UsageError, match="did you mean railway_demo_sft"):
        load_recipe("railway_demo_stf")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("base = ", "bass = "), "unknown key 'bass', did you mean .*base"),
        (('base = "A"', ""), "key 'base' is missing"),
        (("1e-6", '"high"'), "'learning_rate' must be a float, is str"),
        (("1e-6", "2.0"), r"'hyper.learning_rate' is 2, must be in \(0, 1\]"),
        (('"grpo"', '"ppo"'), "'algorithm' is 'ppo'"),
        (('"railway"', '"railwya"'), "'reward' is 'railwya', did you mean railway"),
        (("batch = 4", "batch = 6"), "multiple of 'hyper.generations'"),
        (("generations = 4", "generations = 1"), "group needs 2 or more"),
        (("batch = 4", "batch = true"), "'batch' must be a int, is bool"),
        (('[data]\nsource = "jsonl"', "data = 3"), "'data' must be a table"),
        (("about", "about = ["), "mine.toml: "),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path, change, said):
    with pytest.raises(ConfigError, match=said) as caught:
        load_recipe(written(tmp_path, GOOD.replace(*change)))
    assert "mine.toml" in str(caught.value)


def test_a_recipe_is_read_by_its_path_too(tmp_path):
    assert load_recipe(written(tmp_path, GOOD)).name == "mine"


def test_sft_takes_no_reward(tmp_path):
    with pytest.raises(ConfigError, match="'reward' means nothing"):
        load_recipe(written(tmp_path, GOOD.replace('"grpo"', '"sft"')))


def test_recipes_lie_where_the_listing_looks():
    assert RECIPES.is_dir() and "railway_demo_zero" in NAMES
