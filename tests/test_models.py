import pytest

from harness import paths
from harness.errors import ConfigError, UsageError
from harness.models import load_card, load_model, model_names

GOOD = 'name = "m"\nengine = "hf"\npath = "w"\ntasks = ["t"]\n'


def write(tmp_path, text, name="m"):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "card.toml").write_text(text, encoding="utf-8")
    return folder / "card.toml"


def test_every_shipped_card_loads():
    names = model_names(paths.BASELINES)
    assert {"extractive", "extractive-lossy", "SmolLM2-135M"} <= set(names)
    for name in names:
        assert load_model(name, paths.BASELINES).name == name


def test_a_card_becomes_a_model(tmp_path):
    write(tmp_path, GOOD + 'think_tags = ["<t>", "</t>"]\n[sampling]\ntemperature = 1\n')
    model = load_model("m", tmp_path)
    assert model.tasks == ("t",)
    assert model.think_tags == ("<t>", "</t>")
    assert model.sampling == {"temperature": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("enginee = 'hf'", "did you mean engine"),
        ("context_length = 'long'", "'context_length' must be a int"),
        ("context_length = true", "'context_length' must be a int"),
        ("context_length = 0", "above 0"),
        ("tasks = [1]", "list of strings"),
        ("think_tags = ['a']", "two strings"),
        ("[sampling]\ntemperatur = 1", "did you mean temperature"),
        ("[sampling]\ntop_p = 1.5", "top_p"),
        ("[sampling]\ntemperature = nan", "temperature"),
        ("[parallelism]\nrequests = 0", "parallelism.requests"),
        ("name = ", "card.toml"),
    ],
)
def test_a_mistake_in_a_card_is_one_line_naming_file_and_key(tmp_path, line, says):
    base = "\n".join(x for x in GOOD.splitlines() if x.split()[0] not in line.split()[:1])
    path = write(tmp_path, f"{base}\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_card(path)
    assert "card.toml" in str(caught.value)
    assert says in str(caught.value)


def test_a_card_without_an_engine_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'engine' is missing"):
        load_card(write(tmp_path, 'name = "m"\n'))


def test_an_unknown_model_gets_the_nearest_names(tmp_path):
    write(tmp_path, GOOD.replace('"m"', '"Qwen3-8B"'), "Qwen3-8B")
    with pytest.raises(UsageError, match="did you mean Qwen3-8B"):
        load_model("Qwen-8B", tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../m", "/etc/passwd"])
def test_a_name_cannot_leave_the_folder(tmp_path, name):
    with pytest.raises(UsageError):
        load_model(name, tmp_path)


def test_a_card_in_the_wrong_folder_is_refused(tmp_path):
    write(tmp_path, GOOD, "other")
    with pytest.raises(ConfigError, match="the folder is 'other'"):
        load_model("other", tmp_path)


def test_the_command_line_changes_a_card_and_is_checked_like_one(tmp_path):
    write(tmp_path, GOOD)
    assert load_model("m", tmp_path, {"path": "elsewhere"}).path == "elsewhere"
    with pytest.raises(ConfigError, match="command-line changes"):
        load_model("m", tmp_path, {"context_length": -1})
