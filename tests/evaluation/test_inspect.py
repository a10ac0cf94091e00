"""Evaluations of the real Inspect, with its mock model, that stop early."""

import asyncio
import json
import math
import random

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.log import read_eval_log, write_eval_log  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import exact, includes  # noqa: E402

from sklearn_clm.__main__ import main  # noqa: E402
from sklearn_clm.evaluation import InspectStopping  # noqa: E402
from sklearn_clm.generators.logs import SampleLog, read_records  # noqa: E402

N, EPOCHS = 90, 6
FIELDS = ("prompt", "response", "reference", "label", "id")


def chance_of(question):
    """Some questions are easy, and a few are hopeless."""
    return 0.02 if question % 12 == 0 else 0.35 + 0.5 * (question % 3) / 2


def evaluated(folder, manager, scorers=exact, n=N, chance=chance_of, **options):
    """The log of a model that is right at times."""
    rng = random.Random(0)

    def answer(messages, *_):
        question = int(messages[-1].text.split()[-1])
        right = rng.random() < chance(question)
        said = f"A{question}" if right else f"wrong {rng.randrange(4)}"
        output = ModelOutput.from_content("mockllm/model", said)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output  # whose tokens are not counted by a table from the network

    task = Task(
        dataset=[Sample(id=i, input=f"Question {i}", target=f"A{i}") for i in range(n)],
        scorer=[make() for make in scorers] if isinstance(scorers, list) else scorers(),
        epochs=EPOCHS,
        early_stopping=manager,
        name="toy",
    )
    model = get_model("mockllm/model", custom_outputs=answer)
    (log,) = eval(task, model, log_dir=str(folder), display="none", max_samples=7, **options)
    assert log.status == "success", log.error
    return log.location


def rows_of(path):
    """The draws of each sample, as a calibration reads them."""
    log = SampleLog.of(read_records(path), {name: name for name in FIELDS})
    return dict(zip(log.ids, ([draw.response for draw in row] for row in log.draws)))


@pytest.mark.parametrize("log_format", ["eval", "json"])
def test_a_sample_ends_with_its_first_success_and_its_log_is_read_in_full(
    tmp_path, monkeypatch, capsys, log_format
):
    monkeypatch.chdir(tmp_path)
    manager = InspectStopping()
    path = evaluated(tmp_path, manager, log_format=log_format)
    log = read_eval_log(path)
    found = log.results.early_stopping
    assert found.manager == "sklearn_clm.InspectStopping"
    assert found.metadata["epochs left out"] == len(found.early_stops) > N
    rows = rows_of(path)
    assert sum(map(len, rows.values())) == len(log.samples) == N * EPOCHS - len(found.early_stops)
    for i, row in rows.items():
        is_right = [text == f"A{i}" for text in row]
        # an epoch that began before the first success was known may follow it
        assert any(is_right) or len(row) == EPOCHS
        assert (i in manager.witnesses_) == any(is_right)
        if any(is_right):
            assert manager.witnesses_[i] == is_right.index(True) + 1
    n_drawn = sum(map(len, rows.values()))
    assert n_drawn < 0.7 * N * EPOCHS
    capsys.readouterr()
    level = ["--epsilon", "0.3", "--delta", "0.1"]
    assert main(["calibrate", path, "--key", "mock", *level]) == 0
    assert f"{N} prompts, 1 to {EPOCHS} draws each" in capsys.readouterr().out


def test_a_decided_test_ends_the_evaluation(tmp_path):
    manager = InspectStopping(epsilon=0.5)
    log = read_eval_log(evaluated(tmp_path, manager))
    reasons = {one.reason for one in log.results.early_stopping.early_stops}
    assert "the set of all draws is certified" in reasons
    waiting = InspectStopping()
    evaluated(tmp_path / "other", waiting)
    assert len(log.samples) < N * EPOCHS - waiting._left_out
    hopeless = InspectStopping(epsilon=0.06)
    log = read_eval_log(evaluated(tmp_path / "hopeless", hopeless, chance=lambda question: 0.05))
    reasons = [one.reason for one in log.results.early_stopping.early_stops]
    assert "nothing can be certified" in reasons


@pytest.mark.parametrize("log_format", ["eval", "json"])
def test_a_log_says_whether_verdicts_on_others_ended_it(tmp_path, monkeypatch, capsys, log_format):
    monkeypatch.chdir(tmp_path)
    own = evaluated(tmp_path / "own", InspectStopping(), log_format=log_format)
    decided = evaluated(tmp_path / "others", InspectStopping(epsilon=0.5), log_format=log_format)
    undecided = evaluated(tmp_path / "all", InspectStopping(epsilon=0.2), log_format=log_format)
    alone = "of sets, that of all draws alone is tested"
    for path, n_tested in [(own, None), (undecided, None), (decided, 1)]:
        command = ["calibrate", path, "--key", "mock", "--epsilon", "0.5", "-o", "thresholds.json"]
        assert main(command) == 0
        assert (alone in capsys.readouterr().out) == (n_tested == 1)
        content = json.loads((tmp_path / "thresholds.json").read_text("utf-8"))
        configuration = tuple(map(float, content["rules"][0]["lambda_hat"].values()))
        assert (configuration == (math.inf, -math.inf, math.inf)) == (n_tested == 1)
    # what another manager looked at is not known
    log = read_eval_log(own)
    log.results.early_stopping.metadata = {}
    write_eval_log(log, str(tmp_path / "other.json"))
    assert main([*command[:1], str(tmp_path / "other.json"), *command[2:]]) == 0
    assert alone in capsys.readouterr().out
    assert main([*command, "--policy", "exit"]) == 2
    assert "whatever other prompts showed" in capsys.readouterr().err


def test_of_several_scorers_one_is_named(tmp_path):
    path = evaluated(tmp_path, InspectStopping(scorer="includes"), [exact, includes], n=10)
    assert len(read_eval_log(path).samples) < 10 * EPOCHS
    manager = InspectStopping()
    with pytest.raises(AssertionError, match="scorer must name one of"):
        evaluated(tmp_path, manager, [exact, includes], n=2)


def test_an_earlier_epoch_that_comes_late_is_drawn():
    manager = InspectStopping()

    async def run():
        await manager.start_task(None, [None], 4)
        scored = inspect_ai.scorer.SampleScore(score=inspect_ai.scorer.Score(value="C"))
        await manager.complete_sample("a", 3, {"exact": scored})
        assert await manager.schedule_sample("a", 2) is None
        stop = await manager.schedule_sample("a", 4)
        assert (stop.id, stop.epoch, stop.reason) == ("a", 4, "epoch 3 is admissible")

    asyncio.run(run())


@pytest.mark.parametrize("bad", [{"epsilon": 1.5}, {"epsilon": 0.01}, {"delta": 0}, {"scorer": 3}])
def test_bad_parameters_are_refused_before_a_sample_is_drawn(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        asyncio.run(InspectStopping(**bad).start_task(None, [None] * 60, 1))
