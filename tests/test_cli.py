import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_clm
from sklearn_clm import __main__ as cli
from sklearn_clm.__main__ import main
from sklearn_clm.caching import HumanJudge, VerdictsWanted
from sklearn_clm.calibration import CalibrationData, Provenance, learn_then_test
from sklearn_clm.evaluation import plan
from sklearn_clm.policies import ThresholdPolicy
from tests.evaluation.simulated import simulated_data
from tests.toy import Answering, toy_sampler


@pytest.fixture(scope="module")
def data():
    return simulated_data(600, 6)


@pytest.fixture
def files(data, tmp_path, monkeypatch):
    """Working folder with data of bare arrays."""
    monkeypatch.chdir(tmp_path)
    data.save("data.npz")
    return ["--data", "data.npz"]


def test_calibrate_writes_what_a_sampler_loads(files, data, capsys):
    options = ["--epsilon", "0.35", "--random-state", "7", "--output", "thresholds.json"]
    assert main(["calibrate", *files, *options]) == 0
    output = capsys.readouterr().out
    assert "lambda-hat" in output
    expected = learn_then_test(data, 0.35, random_state=7).lambda_hat
    content = json.loads(Path("thresholds.json").read_text(encoding="utf-8"))
    assert content["format"] == "sklearn_clm.calibration/3"
    assert content["provenance"]["generator"] is None
    sampler = toy_sampler(Answering(), k_max=6, epsilon=0.35, random_state=3)
    sampler.load_calibration("thresholds.json")
    assert sampler.lambda_hat_ == expected
    assert sampler.seed_ == 3
    assert content["provenance"]["seed"] is None
    assert "do not name their generator, seed, quality" in output
    policy = ThresholdPolicy(set_score="sum")
    other = toy_sampler(Answering(), k_max=6, epsilon=0.35, policy=policy)
    with pytest.raises(ValueError, match="set_score"):
        other.load_calibration("thresholds.json")


def test_known_provenance_goes_into_the_file(files, data, capsys):
    given = {"generator": "6f1c", "seed": 5, "quality": "likelihood", "similarity": "rouge_l"}
    parts = data.quality, data.similarity, data.admissible
    CalibrationData(*parts, provenance=Provenance(**given)).save("own.npz")
    assert main(["calibrate", "--data", "own.npz", "--epsilon", "0.5", "--random-state", "1"]) == 0
    known = json.loads(Path("calibration.json").read_text(encoding="utf-8"))["provenance"]
    assert known == {**known, **given, "admission": None}
    assert "do not name their admission:" in capsys.readouterr().out


def test_calibrate_searches_budgets(files, capsys):
    assert main(["calibrate", "--data", "data.npz", "--k-max", "3", "5"]) == 0
    content = json.loads(Path("calibration.json").read_text(encoding="utf-8"))
    assert content["rules"][0]["k_max"] in (3, 5)


def test_calibrate_null_exits_with_1(files, tmp_path, capsys):
    command = ["calibrate", "--data", "data.npz", "--epsilon", "0.02", "--report", "page.md"]
    assert main(command) == 1
    assert "Nothing could be certified" in Path("page.md").read_text("utf-8")
    output, message = capsys.readouterr()
    assert output == "Wrote page.md.\n"
    assert "calibrate: Calibration is null" in message
    assert "smallest epsilon that would have worked" in message
    assert not list(tmp_path.glob("calibration*"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plan"], "SAMPLES, or --data"),
        (["plan", "samples.csv", "--data", "data.npz"], "--data alone"),
        (["plan", "samples.csv", "--judge", "pilot.csv"], "got both"),
        (["calibrate", "--data", "missing.npz"], "'missing.npz'"),
        (["plan", "--data", "."], "'.'"),
        (["calibrate", "--data", "data.npz", "--set-score", "best"], "set_score"),
        (["calibrate", "--data", "data.npz", "--k-max", "9"], "k_max"),
        (["calibrate", "--data", "data.npz", "--delta=2"], "delta"),
        (["calibrate", "--data", "data.npz", "--n-lambdas=0"], "n_lambdas"),
        (["calibrate", "--data", "missing.npz", "--epsilon=20"], "epsilon"),
        (["calibrate", "--data", "data.npz", "--random-state=-1"], "random_state"),
        (["plan", "--data", "data.npz", "--sizes", "1"], "sizes must"),
        (["plan", "--data", "data.npz", "--power", "2"], "power must"),
    ],
)
def test_errors_are_one_line_and_exit_with_2(files, arguments, named, tmp_path, capsys):
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"sklearn-clm {arguments[0]}: error: ")
    assert named in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_usage_errors_exit_with_2(capsys):
    for arguments, said in (
        ([], "COMMAND"),
        (["plan", "--power", "many"], "many"),
        (["explain"], "explain"),
        (["calibrate", "--output", "no/such.json"], "no must be a folder that exists"),
        (["calibrate", "--report", "page.pdf"], "page.pdf must end in .html or .htm or .md"),
        (["predict", "--output", "sets.txt"], "sets.txt must end in .jsonl or .csv"),
    ):
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)  # before a file is read
        assert exit_info.value.code == 2
        error = capsys.readouterr().err
        assert "usage: sklearn-clm" in error
        assert said in error


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("evaluate", "left out"),
        ("calibrate", "seed of the splits (default: 0)"),
        ("plan", "as CalibrationData.save writes them"),
        ("judge", "STORE"),
    ],
)
def test_every_command_has_help(command, text, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    assert exit_info.value.code == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.startswith(f"usage: sklearn-clm {command}")
    assert text in output


def test_plan_prints_and_writes_what_the_function_says(files, data, tmp_path, capsys):
    options = ["--sizes", "100", "400", "--k-max", "3", "--epsilon", "0.4"]
    assert main(["plan", *files, *options, "--output", "plan.md"]) == 0
    expected = plan(data.truncate(3), 0.4, sizes=[100, 400])
    assert capsys.readouterr().out == expected.to_markdown()
    assert (tmp_path / "plan.md").read_text(encoding="utf-8") == expected.to_markdown()


def test_judge_asks_the_question_that_the_store_knows(tmp_path, monkeypatch, capsys):
    store, asked = tmp_path / "verdicts.sqlite", []
    monkeypatch.setattr(cli, "serve", lambda judge, *_, **options: asked.append(judge.question))
    with pytest.raises(VerdictsWanted):
        HumanJudge(store, question="Is it right?")("Paris", "Lyon")
    assert main(["judge", str(store)]) == 0
    assert asked == ["Is it right?"]
    with pytest.raises(VerdictsWanted):
        HumanJudge(store, question="Is it true?")("Paris", "Lyon")
    assert main(["judge", str(store)]) == 2
    assert "['Is it right?', 'Is it true?']" in capsys.readouterr().err
    assert main(["judge", str(store), "--question", "Is it true?"]) == 0
    assert asked == ["Is it right?", "Is it true?"]


def test_judge_serves_what_the_last_calibration_lacked(tmp_path, monkeypatch, capsys):
    store, served = tmp_path / "verdicts.sqlite", []
    monkeypatch.setattr(
        cli, "serve", lambda judge, wanted, **options: served.append((judge, wanted, options))
    )
    judge = HumanJudge(store)
    with pytest.raises(VerdictsWanted) as caught:
        judge("Paris", "Lyon")
    assert main(["judge", str(store), "--name", "Ada", "--port", "8000"]) == 0
    assert served[-1][0].judge == "Ada"
    assert served[-1][1:] == ([*caught.value.wanted], {"port": 8000})
    judge.record(caught.value.wanted[0], True, judge="Ada")
    capsys.readouterr()
    assert main(["judge", str(store)]) == 2
    assert "holds nothing to judge" in capsys.readouterr().err
    assert main(["judge", str(tmp_path / "none.sqlite")]) == 2
    assert "none.sqlite" in capsys.readouterr().err


def test_no_input_is_written_over(files, capsys):
    Path("link.npz").symlink_to("data.npz")
    for name in ("data.npz", "link.npz"):
        for command in ("calibrate", "plan"):
            assert main([command, "--data", "data.npz", "--output", name]) == 2
            assert "--output must be none of the inputs" in capsys.readouterr().err
    assert CalibrationData.load("data.npz").n_prompts == 600


def test_output_that_nobody_reads_ends_it_quietly(files):
    environment = {**os.environ, "PYTHONPATH": str(Path(sklearn_clm.__file__).parents[1])}
    command = [sys.executable, "-m", "sklearn_clm", "plan", *files]
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(command, env=environment, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (process.communicate(timeout=120)[1], process.returncode) == (b"", 130)


def test_an_interrupt_ends_it_quietly(files, monkeypatch, capsys):
    def interrupted(*_, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "plan", interrupted)
    assert main(["plan", *files]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["model;people\n" + 48 * "y;ja\n", "model,verdict\ny,y\n"])
def test_a_pilot_that_is_not_all_of_verdicts_is_refused(tmp_path, capsys, text):
    (tmp_path / "pilot.csv").write_text(text)
    assert main(["plan", "--judge", str(tmp_path / "pilot.csv")]) == 2
    assert "people" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "better"),
    [
        # people were asked about what the model refuses alone
        (46 * "y;\n" + 4 * "n;n\n", "Two phases are better"),
        # people admit what the model refuses
        (40 * "y;y\n" + 10 * "n;y\n", "People alone are better"),
    ],
)
def test_plan_compares_an_audit_with_people_alone(tmp_path, capsys, rows, better):
    (tmp_path / "pilot.csv").write_text("model;people\n" + rows)
    command = ["plan", "--judge", str(tmp_path / "pilot.csv"), "--sizes", "400", "--epsilon", "0.2"]
    assert main([*command, "--power", "0.8", "--output", str(tmp_path / "plan.md")]) == 0
    printed = capsys.readouterr().out
    assert better in printed
    assert "| audits | power in two phases | power of betting | power of people alone |" in printed
    assert (tmp_path / "plan.md").read_text() == printed
