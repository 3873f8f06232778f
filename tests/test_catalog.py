import pytest

from harness import paths
from harness.catalog import catalog, expand
from harness.errors import ConfigError, UsageError


def test_every_yaml_is_listed_and_groups_expand():
    entries = catalog(paths.TASKS)
    assert expand(["railway_demo"], entries) == [f"railway_demo_top{k}" for k in (1, 3, 5)]
    for entry in entries.values():
        expand([entry.name], entries)


def test_each_task_declares_what_the_harness_needs():
    for entry in catalog(paths.TASKS).values():
        if not entry.members:
            assert {"version", "scorer", "about", "board", "metric"} <= set(entry.metadata), entry


def test_a_task_is_expanded_once():
    entries = catalog(paths.TASKS)
    assert len(expand(["railway_demo", "railway_demo_top1"], entries)) == 3


def test_an_unknown_task_gets_the_nearest_names():
    with pytest.raises(UsageError, match="did you mean railway_demo"):
        expand(["railway_dmeo"], catalog(paths.TASKS))


@pytest.mark.parametrize("text", ["a: [", "- 1", "about: x", "task: 3"])
def test_a_broken_yaml_is_an_error_and_not_a_missing_task(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        catalog(tmp_path)


def test_a_name_given_twice_is_an_error(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("task: same", encoding="utf-8")
    with pytest.raises(ConfigError, match="also defined"):
        catalog(tmp_path)
