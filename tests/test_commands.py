"""eval, freeze, compare, check and leaderboard through the command line, in one process."""

import gzip
import json
import shutil
import sqlite3

import pytest

from harness import cli, paths
from harness.commands import lineage
from harness.compare import compare
from harness.gates import load_gates
from harness.runs import load_baseline
from harness.store import FILE


class Bench:
    """A folder of runs, baselines and boards, and a way to run commands in it."""

    def __init__(self, root):
        self.root = root
        self.out, self.baselines, self.boards = root / "runs", root / "baselines", root / "boards"
        self.baselines.mkdir()
        for name in ("extractive", "extractive-lossy"):
            (self.baselines / name).mkdir()
            shutil.copy(paths.BASELINES / name / "card.toml", self.baselines / name)
        shutil.copy(paths.BASELINES / "gates.toml", self.baselines)

    def __call__(self, verb, *arguments):
        where = [f"out={self.out}", f"baselines={self.baselines}"]
        if verb in ("eval", "leaderboard"):
            where.append(f"boards={self.boards}")
        return cli.main([verb, *arguments, *where])

    def gate(self):
        return json.loads((self.out / "gate.json").read_text("utf-8"))

    def run(self, name):
        return next(p for p in self.out.iterdir() if p.name.startswith(name + "-"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Extractive frozen in full; a lossy run and a five-doc run beside it."""
    made = Bench(tmp_path_factory.mktemp("bench"))
    assert made("eval", "model=extractive") == 0
    assert made("freeze", "run=extractive", "as=extractive") == 0
    made("eval", "model=extractive-lossy", "vary=policy")
    return made


def test_a_run_against_itself_is_identical(bench):
    assert bench("compare", "model=extractive", "baseline=extractive") == 0
    assert {c["verdict"] for c in bench.gate()["comparisons"]} == {"identical"}


def test_a_reader_that_drops_every_third_answer_regresses(bench, capsys):
    code = bench("compare", "model=extractive-lossy", "baseline=extractive", "vary=policy")
    assert code == 10
    worst = [c for c in bench.gate()["comparisons"] if c["verdict"] == "regressed"]
    assert "joint_accuracy" in {c["metric"] for c in worst}
    for c in worst:
        assert c["metric"] in ("joint_accuracy", "answer_accuracy")
        assert c["delta"] < 0
        assert c["interval"][1] < 0
        assert c["clusters"] == 20
        assert 0 < c["mde"] < 1
    shown = capsys.readouterr().out
    for word in ("railway_demo_top5", "joint_accuracy", "regressed", "20", "MDE"):
        assert word in shown


def test_five_docs_decide_nothing(bench, tmp_path):
    small = Bench(tmp_path)
    shutil.copytree(bench.baselines / "extractive", small.baselines / "base")
    small("eval", "model=extractive-lossy", "limit=5", "baseline=base", "vary=policy")
    ask = ("compare", "model=extractive-lossy", "baseline=base", "vary=policy")
    assert small(*ask, "profile=pr") == 0
    assert "inconclusive" in {c["verdict"] for c in small.gate()["comparisons"]}
    assert small(*ask, "profile=release") == 11


def test_another_retriever_is_not_comparable_unless_varied(bench, tmp_path, capsys):
    other = Bench(tmp_path)
    shutil.copytree(bench.baselines / "extractive", other.baselines / "base")
    assert other("eval", "model=extractive", "retriever=rank_bm25", "baseline=base") == 12
    assert "retriever differs" in capsys.readouterr().out
    assert all("retriever" in c["note"] for c in other.gate()["comparisons"])
    assert other("compare", "model=extractive", "baseline=base") == 12
    code = other("compare", "model=extractive", "baseline=base", "vary=retriever")
    assert code in (0, 10)


def test_an_unknown_baseline_is_13_with_the_nearest_name(bench, capsys):
    assert bench("compare", "model=extractive-lossy", "baseline=extractve") == 13
    assert "did you mean extractive" in capsys.readouterr().err
    assert bench.gate()["exit_code"] == 13


def test_a_missing_baseline_fails_a_release_and_not_a_pull_request(tmp_path):
    bare = Bench(tmp_path)
    assert bare("eval", "model=extractive", "limit=2", "profile=pr") == 0
    assert bare("eval", "model=extractive", "limit=2", "profile=release") == 13


def test_missing_samples_are_3_and_bounded_by_best_and_worst_case(bench, tmp_path):
    run = next(p for p in bench.out.glob("extractive-lossy-*"))
    copy = tmp_path / "runs" / run.name
    shutil.copytree(run, copy)
    db = sqlite3.connect(copy / FILE)
    db.execute("DELETE FROM samples WHERE doc_id LIKE '%q1'")
    db.execute("UPDATE tasks SET complete = 0")
    db.commit()
    db.close()
    arguments = [f"out={tmp_path / 'runs'}", f"baselines={bench.baselines}"]
    ask = ["compare", f"model={run.name}", "baseline=extractive", "vary=policy", *arguments]
    assert cli.main(ask) == 3
    verdicts = json.loads((tmp_path / "runs" / "gate.json").read_text("utf-8"))["comparisons"]
    assert {"incomplete"} == {c["verdict"] for c in verdicts if c["blocking"]}


def test_a_regression_that_no_missing_sample_can_mend_outranks_3(bench, tmp_path):
    run = next(p for p in bench.out.glob("extractive-lossy-*"))
    copy = tmp_path / "runs" / run.name
    shutil.copytree(run, copy)
    db = sqlite3.connect(copy / FILE)
    db.execute("UPDATE samples SET metrics = json_set(metrics, '$.joint_accuracy', 0.0)")
    db.execute("DELETE FROM samples WHERE doc_id = 'demo-test-p02-q1'")
    db.execute("UPDATE tasks SET complete = 0")
    db.commit()
    db.close()
    arguments = [f"out={tmp_path / 'runs'}", f"baselines={bench.baselines}"]
    ask = ["compare", f"model={run.name}", "baseline=extractive", "vary=policy", *arguments]
    assert cli.main(ask) == 10


def test_freezing_the_same_run_gives_the_same_bytes(bench, tmp_path):
    bench("freeze", "run=extractive-lossy", "as=one")
    first = {p.name: p.read_bytes() for p in (bench.baselines / "one").iterdir()}
    bench("freeze", "run=extractive-lossy", "as=one")
    assert first == {p.name: p.read_bytes() for p in (bench.baselines / "one").iterdir()}
    shutil.rmtree(bench.baselines / "one")


def test_a_frozen_baseline_holds_no_text_of_the_data(bench):
    path = bench.baselines / "extractive" / "railway_demo_top1.jsonl.gz"
    line = json.loads(gzip.decompress(path.read_bytes()).splitlines()[1])
    assert set(line) == {
        "id", "cluster", "stratum", "prompt_sha", "repeat", "output", "finish", "reasons",
        "metrics", "completion_tokens",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["cut", "text", "line"])
def test_a_damaged_baseline_is_one_line_and_exit_code_2(bench, tmp_path, capsys, damage):
    copy = tmp_path / "baselines"
    shutil.copytree(bench.baselines, copy)
    path = copy / "extractive" / "railway_demo_top1.jsonl.gz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:300])
    elif damage == "text":
        path.write_bytes(b"hello")
    else:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        with gzip.open(path, "wt", encoding="utf-8") as out:
            out.write("\n".join([*lines[:3], "{", *lines[4:]]))
    ask = ["compare", "model=extractive-lossy", "baseline=extractive", "vary=policy"]
    code = cli.main([*ask, f"out={bench.out}", f"baselines={copy}"])
    err = capsys.readouterr().err
    assert code == 2
    assert "railway_demo_top1" in err
    assert err.count("\n") == 1
    if damage == "line":
        assert "line 4" in err


def test_boards_are_written_again_byte_for_byte(bench):
    bench("leaderboard")
    first = {p.name: p.read_bytes() for p in bench.boards.iterdir()}
    assert {"README.md", "railway_demo.md"} <= set(first)
    bench("leaderboard")
    assert first == {p.name: p.read_bytes() for p in bench.boards.iterdir()}


def test_the_board_shows_parent_deltas_clusters_and_intervals(bench):
    bench("leaderboard")
    text = (bench.boards / "railway_demo.md").read_text("utf-8")
    lossy = next(x for x in text.splitlines() if x.startswith("| extractive-lossy"))
    assert "regressed" in lossy
    assert "[" in lossy
    assert "| 20 " in lossy


def test_a_whole_page_as_answer_scores_nothing(bench, tmp_path):
    run = ("eval", "model=extractive", "policy_options.mode=page", "tasks=railway_demo_top1")
    copier = Bench(tmp_path)
    copier(*run)
    with sqlite3.connect(copier.run("extractive") / FILE) as db:
        rows = db.execute("SELECT metrics FROM samples").fetchall()
    assert rows
    assert sum(json.loads(m)["answer_accuracy"] for (m,) in rows) == 0


def test_check_passes_whole_runs_and_names_a_broken_one(bench, tmp_path, capsys):
    assert bench("check") == 0
    broken = tmp_path / "runs" / "broken-1"
    broken.mkdir(parents=True)
    (broken / FILE).write_bytes(b"garbage" * 100)
    code = cli.main(["check", f"out={tmp_path / 'runs'}", f"baselines={bench.baselines}"])
    assert code == 2
    assert "broken-1" in capsys.readouterr().out


def test_runs_lists_what_is_stored_and_what_cannot_be_read(bench, capsys):
    assert bench("runs") == 0
    assert "extractive-lossy" in capsys.readouterr().out


def test_export_writes_the_records_of_a_run(bench, tmp_path):
    assert bench("check", "run=extractive-lossy", f"export={tmp_path / 'x.jsonl'}") == 0
    assert len((tmp_path / "x.jsonl").read_text("utf-8").splitlines()) == 300


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden"])
def test_a_baselines_name_cannot_leave_its_folder(bench, name):
    assert bench("freeze", "run=extractive", f"as={name}") == 2


def test_a_mistake_in_gates_names_the_file_and_the_key(bench, tmp_path, capsys):
    shutil.copytree(bench.baselines, tmp_path / "b")
    gates = tmp_path / "b" / "gates.toml"
    gates.write_text(gates.read_text("utf-8").replace("blocking", "bloking"), encoding="utf-8")
    ask = ["compare", "model=extractive-lossy", "baseline=extractive"]
    assert cli.main([*ask, f"out={bench.out}", f"baselines={tmp_path / 'b'}"]) == 2
    err = capsys.readouterr().err
    assert "gates.toml" in err
    assert "did you mean blocking" in err


@pytest.mark.parametrize("option", ["drop_every=-1", "nope=1"])
def test_a_wrong_policy_option_is_the_users_mistake_and_not_a_failed_run(tmp_path, capsys, option):
    code = Bench(tmp_path)("eval", "model=extractive", "limit=2", f"policy_options.{option}")
    assert code == 2
    assert option.partition("=")[0] in capsys.readouterr().err


def test_a_key_that_a_gate_would_not_heed_is_refused(bench, tmp_path, capsys):
    shutil.copytree(bench.baselines, tmp_path / "b")
    gates = tmp_path / "b" / "gates.toml"
    gates.write_text(gates.read_text("utf-8") + 'reference = "self"\n', encoding="utf-8")
    ask = ["compare", "model=extractive-lossy", "baseline=extractive"]
    assert cli.main([*ask, f"out={bench.out}", f"baselines={tmp_path / 'b'}"]) == 2
    assert "reference" in capsys.readouterr().err


def test_two_engines_are_compared_output_by_output(bench, tmp_path, capsys):
    run = bench.run("extractive")
    copy = tmp_path / "runs" / "other"
    shutil.copytree(run, copy)
    db = sqlite3.connect(copy / FILE)
    db.execute("UPDATE tasks SET info = json_set(info, '$.fingerprints.engine', 'another')")
    db.execute(
        "UPDATE samples SET rollout = json_set(rollout, '$.answer', char(27) || '[1mno' || "
        "char(10) || '!') WHERE doc_id = 'demo-test-p02-q1'"
    )
    db.commit()
    db.close()
    ask = ["compare", f"model={run}", f"baseline={copy}", f"out={tmp_path}",
           f"baselines={bench.baselines}"]  # fmt: skip
    assert cli.main([*ask, "vary=weights"]) == 12
    capsys.readouterr()
    assert cli.main([*ask, "vary=engine"]) == 0
    shown = [x for x in capsys.readouterr().out.splitlines() if x.startswith("outputs: ")]
    assert len(shown) == 3
    assert all("99 of 100 greedy outputs identical; first difference" in x for x in shown)
    assert all("doc 'demo-test-p02-q1' at character 0" in x for x in shown)
    assert all(x.isprintable() and "\\x1b[1mno\\n" in x for x in shown)
    outputs = json.loads((tmp_path / "gate.json").read_text("utf-8"))["outputs"]
    assert {(o["same"], o["total"], o["first"]["position"]) for o in outputs} == {(99, 100, 0)}


def test_a_board_gives_a_run_the_verdicts_of_its_gate():
    gates = load_gates(paths.BASELINES, "pr")
    sides = ("SmolLM2-135M-SFT-RL", "SmolLM2-135M-SFT")
    ours, parent = (load_baseline(name, paths.RUNS, paths.BASELINES) for name in sides)
    gated = compare(ours, parent, gates)
    wanted = {
        c.task: (c.verdict, c.p_adjusted, c.interval)
        for line in gated.lines
        if (c := line.comparison).metric == "joint_accuracy"
    }
    found = lineage(gates)(ours, parent)
    assert {t: (c.verdict, c.p_adjusted, c.interval) for t, c in found.items()} == wanted
    alone = lineage(gates)({t: ours[t] for t in ["railway_demo_top5"]}, parent)
    assert alone["railway_demo_top5"].p_adjusted < wanted["railway_demo_top5"][1]
