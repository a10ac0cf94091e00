"""The command line on samples: tables, and logs of lm-evaluation-harness and Inspect."""

import csv
import glob
import json
import random
import re
import shlex
import sys
import tomllib
import tracemalloc
import warnings
import zipfile
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.__main__ import main
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.calibration import learn_then_test
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.generators import logs as _logs
from sklearn_clm.policies import AnswerPolicy, ExitPolicy
from tests.examples.loading import EXAMPLES, load

NAMES = ["--prompt", "question", "--response", "answer"]
KEY = ["--key", "adder, version 1"]
THRESHOLDS = ["--calibration", "calibration.json", *KEY]


@pytest.fixture
def logs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return load(EXAMPLES / "logs" / "write_logs.py", monkeypatch)


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


@pytest.fixture
def calibrated(logs, capsys):
    """Thresholds of samples that are judged by their references."""
    write_csv("samples.csv", list(rows_of(logs)))
    command = ["calibrate", "samples.csv", *NAMES, *KEY, "--reference", "truth"]
    assert main([*command, "--epsilon", "0.4"]) == 0
    capsys.readouterr()


def write_json_lines(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(logs, n=60, seed=0):
    """One draw in a row."""
    for question, result, draws in logs.sums(n, 5, seed):
        for draw in draws:
            yield {"question": question, "answer": draw, "truth": result, "right": draw == result}


def lists_of(logs, n, seed):
    for question, result, draws in logs.sums(n, 5, seed):
        right = [draw == result for draw in draws]
        yield {"question": question, "answers": draws, "truths": [result, "none"], "right": right}


def write_samples(logs, kind, path, n=60, seed=0):
    """A file of samples; its name, and the names of its columns."""
    name, _, shape = kind.partition(" ")
    path = f"{path}.{name}"
    if shape == "lm-eval":
        write_json_lines(path, logs.lm_eval_lines(n, 5, seed))
        return path, [], ["--reference", "target"]
    if shape == "Inspect":
        header, samples = logs.inspect_log(n, 5, seed)
        if name == "eval":
            logs.write_eval(path, header, samples)
        else:
            Path(path).write_text(json.dumps({**header, "samples": samples}))
        return path, [], []
    rows, names = list(rows_of(logs, n, seed)), NAMES
    judged = ["--label", "right"]
    if shape == "lists":
        rows, judged = list(lists_of(logs, n, seed)), ["--references", "truths"]
        names = ["--prompt", "question", "--responses", "answers"]
    if name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name == "csv":
        as_json = [
            {key: json.dumps(one) if isinstance(one, list) else one for key, one in row.items()}
            for row in rows
        ]
        write_csv(path, as_json)
    else:
        write_json_lines(path, rows)
    return path, names, judged


KINDS = [f"{name}{shape}" for name in ("csv", "jsonl", "parquet") for shape in ("", " lists")]
KINDS += ["jsonl lm-eval", "eval Inspect", "json Inspect"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_reads_every_kind_of_file(logs, kind, capsys):
    parts = {"quality": "self_consistency", "similarity": "rouge_l"}
    questions, truths, draws = map(list, zip(*logs.sums(60, 5)))
    # the prompts split the data, as each file words them
    prompts = [f"Q: {one}\nA:" for one in questions] if "lm-eval" in kind else questions
    oracle = ConformalSampler(PrecomputedGenerator(prompts, draws), k_max=5, epsilon=0.4, **parts)
    data = oracle.collect(prompts, truths)
    expected = learn_then_test(data, 0.4, random_state=3).lambda_hat
    path, names, judged = write_samples(logs, kind, "samples")
    level = ["--epsilon", "0.4", "--random-state", "3", *KEY]
    assert main(["calibrate", path, *names, *judged, *level, "--report", "report.md"]) == 0
    assert "Means over the 60 prompts that calibrated" in Path("report.md").read_text("utf-8")
    assert "60 prompts, 5 draws each; quality: self_consistency" in capsys.readouterr().out
    (rule,) = json.loads(Path("calibration.json").read_text())["rules"]
    assert rule["k_max"] == 5
    assert {name: float(one) for name, one in rule["lambda_hat"].items()} == expected._asdict()
    assert main(["plan", path, *names, *judged, "--sizes", "100"]) == 0
    assert "Plan from a pilot of 60 prompts with 5 draws" in capsys.readouterr().out
    new, *_ = write_samples(logs, kind, "new", 40, seed=2)
    assert main(["predict", new, *names, *THRESHOLDS, "-o", "sets.jsonl"]) == 0
    asked, _, drawn = map(list, zip(*logs.sums(40, 5, 2)))
    generator = PrecomputedGenerator(asked, drawn, key=KEY[1])
    sampler = ConformalSampler(generator, k_max=5, epsilon=0.4, random_state=3, **parts)
    with warnings.catch_warnings(action="ignore"):
        sets = sampler.load_calibration("calibration.json").predict(asked)
    assert capsys.readouterr().err == ""
    written = [json.loads(line) for line in Path("sets.jsonl").read_text().splitlines()]
    assert [tuple(one["responses"]) for one in written] == [one.responses for one in sets]
    assert [one["n_samples"] for one in written] == sets.n_samples.tolist()
    assert main(["evaluate", new, *names, *judged, *THRESHOLDS]) == 0
    held = sum(truth in one for truth, one in zip((r for _, r, _ in logs.sums(40, 5, 2)), sets))
    assert f"Promised 60 %, held {100 * held / 40:.1f} % of 40 prompts" in capsys.readouterr().out


def test_the_examples_are_what_their_script_writes(logs):
    header, samples = logs.inspect_log()
    logs.write_eval("sums.eval", header, samples)
    with zipfile.ZipFile("sums.eval") as new, zipfile.ZipFile(EXAMPLES / "logs/sums.eval") as old:
        assert {name: new.read(name) for name in new.namelist()} == {
            name: old.read(name) for name in old.namelist()
        }
    kept = (EXAMPLES / "logs" / logs.LM_EVAL).read_text("utf-8").splitlines()
    assert list(map(json.loads, kept)) == list(logs.lm_eval_lines())


def test_verdicts_that_held_out_prompts_refute_exit_with_1(logs, capsys):
    write_csv("samples.csv", list(rows_of(logs)))
    judged = [*NAMES, *KEY, "--reference", "truth"]
    assert main(["calibrate", "samples.csv", *judged, "--epsilon", "0.3"]) == 0
    worse = [row | {"answer": "none"} for row in rows_of(logs, 40, seed=1)]
    write_csv("worse.csv", worse)
    measured = ["evaluate", "worse.csv", *judged, "--calibration", "calibration.json"]
    assert main(measured) == 1
    assert "the promise is refuted" in capsys.readouterr().out
    assert main(["calibrate", "worse.csv", *judged]) == 1


def verdicts(labels, threshold=None):
    records = [
        ("it", {"prompt": "a", "response": str(j), "label": x}) for j, x in enumerate(labels)
    ]
    names = {name: name for name in ("prompt", "response", "label")}
    return [*_logs.SampleLog.of(records, names, threshold).verdicts[0].values()]


@pytest.mark.parametrize(
    ("labels", "threshold"),
    [
        ([True, False], None),
        ([1, 0.0], None),
        (["True", "false"], None),
        (["1.0", " 0 "], None),
        (["yes", "No"], None),
        (["C", "I"], None),
        (["C", "N"], None),
        ([0.7, "0.3"], 0.5),
        (["P", "i"], 0.5),
        (["C", "P"], 1.0),
    ],
)
def test_verdicts_of_many_types(labels, threshold):
    assert verdicts(labels, threshold) == [True, False]


@pytest.mark.parametrize("label", [0.7, "P", 2, "good", {"a": 1}, [1], float("inf")])
def test_labels_that_are_no_verdicts_are_refused(label):
    with pytest.raises(ValueError, match=r"^it: "):
        verdicts([label])


def test_of_equal_texts_the_strictest_verdict_counts():
    rows = [("it", {"prompt": "a", "response": "x", "label": one}) for one in (1, 0, 1)]
    log = _logs.SampleLog.of(rows, {name: name for name in ("prompt", "response", "label")})
    assert log.verdicts == [{"x": False}]


def test_the_threshold_of_labels_is_a_number_and_needs_labels(logs, capsys):
    write_csv("samples.csv", list(rows_of(logs)))
    command = ["calibrate", "samples.csv", *NAMES, *KEY]
    for wrong, column in (
        ("nan", "--label=right"),
        ("inf", "--label=right"),
        (".5", "--reference=truth"),
    ):
        assert main([*command, column, "--threshold", wrong]) == 2
        assert "--threshold must be" in capsys.readouterr().err


def test_samples_of_a_prompt_are_its_draws_and_few_of_them_are_no_reason_to_cut(logs, capsys):
    rows = list(rows_of(logs))
    write_csv("first.csv", rows)
    write_csv("second.csv", rows[5:])  # as of another run, which lacks the first prompt
    columns = [*NAMES, *KEY, "--reference", "truth"]
    judged = [*columns, "--epsilon", "0.4"]
    assert main(["calibrate", "first.csv", "second.csv", *judged]) == 0
    out, err = capsys.readouterr()
    assert "60 prompts, 5 to 10 draws each" in out
    assert "warning" not in err  # the one prompt shows early whether its set is right
    assert main(["calibrate", "first.csv", "second.csv", *judged, "--k-max", "5"]) == 0
    assert "60 prompts, 5 draws each" in capsys.readouterr().out
    assert main(["calibrate", "first.csv", "second.csv", *judged, "--k-max", "11"]) == 2
    assert "--k-max must be at most 10" in capsys.readouterr().err
    answers = ["--policy", "answer", "--delta", "0.2", "--alpha", "0.3"]
    assert main(["calibrate", "first.csv", "second.csv", *columns, *answers]) == 0
    assert "1 of 60 calibration prompts end before they show whether" in capsys.readouterr().err
    assert main(["calibrate", "first.csv", "./first.csv", *judged]) == 2
    assert "must be different files" in capsys.readouterr().err
    write_csv("first.csv", [*rows, rows[0] | {"truth": "other"}])
    assert main(["calibrate", "first.csv", *judged]) == 2
    assert "the reference of '" in capsys.readouterr().err
    write_csv("first.csv", [row | {"reference": j, "label": "?"} for j, row in enumerate(rows)])
    assert main(["calibrate", "first.csv", *judged]) == 0  # what is named counts alone
    judged = [*NAMES, *KEY, "--label", "right", "--epsilon", "0.4"]
    assert main(["calibrate", "first.csv", *judged]) == 0


def test_scores_of_a_file_are_its_quality(logs, capsys):
    rows = [
        row | {"logprob": -len(row["answer"]), "n_tokens": 1, "score": j % 5}
        for j, row in enumerate(rows_of(logs))
    ]
    write_csv("samples.csv", rows)
    command = ["calibrate", "samples.csv", *NAMES, *KEY, "--label", "right", "--epsilon", "0.4"]
    predict = ["predict", "samples.csv", *NAMES, *THRESHOLDS, "-o", "sets.jsonl"]
    assert main(command) == 0
    assert "quality: likelihood; admission: verdicts of the file" in capsys.readouterr().out
    assert main(predict) == 0
    bare = [{key: row[key] for key in ("question", "answer")} | {"label": "sum"} for row in rows]
    write_csv("bare.csv", bare)  # whose label is no verdict, and is not asked for
    assert main(["predict", "bare.csv", *NAMES, *THRESHOLDS]) == 2
    assert "SAMPLES must have --logprob and --n-tokens" in capsys.readouterr().err
    write_csv("blank.csv", [*rows[:7], rows[7] | {"logprob": ""}, *rows[8:]])
    for lacks in (command, predict):
        assert main([lacks[0], "blank.csv", *lacks[2:]]) == 2
        assert "logprob must be known for every draw" in capsys.readouterr().err
    assert main([*command, "--quality", "score"]) == 0
    assert "quality: of the file" in capsys.readouterr().out
    known = json.loads(Path("calibration.json").read_text())["provenance"]
    assert [known[name] for name in ("generator", "quality", "admission")] == [KEY[1], None, None]
    assert main(predict) == 2
    assert "--quality must name" in capsys.readouterr().err
    assert main([*predict, "--quality", "score"]) == 0


@pytest.mark.usefixtures("calibrated")
def test_ids_come_back_with_the_sets(logs, capsys):
    new = [{"number": f"n{j // 5}"} | row for j, row in enumerate(rows_of(logs, 20, seed=2))]
    write_csv("new.csv", new)
    predict = ["predict", "new.csv", *NAMES, *THRESHOLDS, "--id", "number"]
    assert main(predict) == 0
    sets = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["id"] for one in sets] == [f"n{i}" for i in range(20)]
    assert main([*predict, "-o", "sets.csv"]) == 0
    assert capsys.readouterr().out == f"{sets[0]['guarantee']}\nWrote sets.csv.\n"
    table = read_sets("sets.csv")
    rows = [(row["id"], row["prompt"], row["response"]) for row in table]
    assert rows == [(one["id"], one["prompt"], said) for one in sets for said in one["responses"]]
    promised = [(row["guaranteed"], row["remarks"]) for row in table]
    assert promised == [("true", "")] * len(rows)


def read_sets(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


HOSTILE = [
    '=HYPERLINK("http://a.test")',
    "+1",
    "-1 + 2",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " \n =1",
    "＝1",
    "'=1",
    "''=1",
    "a\rb",
    "a\r\nb",
    "a\n",
    'say "a, b"; c',
    "\ufeffmark",
    "",
    "'quoted'",
    "5",
]


@pytest.mark.usefixtures("calibrated")
def test_a_table_of_sets_holds_no_formula_and_is_read_as_it_was_written(logs):
    """As many rows, the same texts but for the apostrophe, and numbers as they are."""
    new = list(rows_of(logs, len(HOSTILE), seed=2))
    for j, row in enumerate(new):
        row |= {"question": f"{HOSTILE[j // 5]} {j // 5}", "answer": HOSTILE[j // 5]}
    write_json_lines("new.jsonl", new)
    predict = ["predict", "new.jsonl", *NAMES, *THRESHOLDS]
    assert main([*predict, "-o", "sets.jsonl"]) == 0
    assert main([*predict, "-o", "sets.csv"]) == 0
    sets = [json.loads(line) for line in Path("sets.jsonl").read_text("utf-8").splitlines()]
    table = read_sets("sets.csv")
    assert not [cell for row in table for cell in row.values() if re.match(r"\s*[=+@＝]", cell)]
    texts = [(row["prompt"], row["response"]) for row in table]
    expected = [(one["prompt"], said) for one in sets for said in one["responses"]]
    assert [(plain_text(prompt), plain_text(said)) for prompt, said in texts] == expected
    assert len(set(texts)) == len(HOSTILE)
    assert [float(row["quality"]) for row in table] == [q for one in sets for q in one["quality"]]


def plain_text(cell):
    """The text in a cell, without the apostrophe that a formula would have."""
    return cell[1:] if re.match(r"['\s]*[=+\-@＝＋－＠]", cell) else cell


def test_a_key_lets_thresholds_of_a_table_serve_a_service(logs, capsys):
    write_csv("samples.csv", list(rows_of(logs)))
    options = [*NAMES, "--reference", "truth", "--epsilon", "0.4"]
    assert main(["calibrate", "samples.csv", *options]) == 2  # who made the draws?
    assert "--key must name" in capsys.readouterr().err
    assert main(["calibrate", "samples.csv", *options, *KEY]) == 0
    questions, _, draws = map(list, zip(*logs.sums(20, 5, 1)))
    generator = PrecomputedGenerator(questions, draws)
    parts = {"k_max": 5, "epsilon": 0.4, "quality": "self_consistency"}
    for key, error in (("adder, version 1", None), ("adder, version 2", "another generator")):
        service = ConformalSampler(CachedGenerator(generator, key=key), random_state=0, **parts)
        if error is None:
            assert service.load_calibration("calibration.json").predict(questions).guaranteed
        else:
            with pytest.raises(ValueError, match=error):
                service.load_calibration("calibration.json")
    write_csv("new.csv", list(rows_of(logs, 20, 2)))
    for command in ("predict", "evaluate"):
        for key in ([], ["--key", "another"]):
            new = [command, "new.csv", *NAMES, "--calibration", "calibration.json", *key]
            assert main(new + ["--reference", "truth"] * (command == "evaluate")) == 2
            assert "the thresholds, 'adder, version 1'" in capsys.readouterr().err


@pytest.mark.usefixtures("calibrated")
def test_predict_needs_the_draws_alone_that_its_sets_take(logs, capsys):
    new = list(rows_of(logs, 20, seed=2))
    write_csv("new.csv", new)
    predict = ["predict", "new.csv", *NAMES, *THRESHOLDS]
    assert main(predict) == 0
    sets = capsys.readouterr()
    taken = [json.loads(line)["n_samples"] for line in sets.out.splitlines()]
    assert min(taken) < max(taken)
    write_csv("new.csv", [row for j, row in enumerate(new) if j % 5 < taken[j // 5]])
    assert main(predict) == 0
    assert capsys.readouterr() == sets
    i = taken.index(max(taken))
    fewer = [row for j, row in enumerate(new) if j % 5 < taken[j // 5] - (j // 5 == i)]
    write_csv("new.csv", fewer)
    assert main(predict) == 0
    out, err = capsys.readouterr()
    assert "the draws of 1 of 20 prompts end before the rule stops" in err
    for k, (line, whole) in enumerate(zip(out.splitlines(), sets.out.splitlines(), strict=True)):
        if k != i:
            assert line == whole
            continue
        one = json.loads(line)
        assert (one["n_samples"], one["needs_draws"]) == (taken[i] - 1, True)
        assert not one["guaranteed"]
        assert "guaranteed of this set: the rule wants more than its" in one["guarantee"]


def test_a_log_that_stopped_at_a_success_is_no_vote(logs, capsys):
    rows = []
    for i in range(120):
        row = {"question": f"question {i}", "truth": "right"}
        rows += [row | {"answer": answer} for answer in ["wrong", "so so", "right"][: 1 + i % 3]]
        rows[-1]["answer"] = "right"
    write_csv("stopped.csv", [*rows, *[rows[-1] | {"answer": "right"}] * 7])
    calibrate = ["calibrate", "stopped.csv", *NAMES, *KEY, "--reference", "truth"]
    answers = [*calibrate, "--policy", "answer", "--alpha", "0.3"]
    assert main(answers) == 2
    assert "score must be 'vote', or 'learnt'" in capsys.readouterr().err
    assert main([*answers, "--score", "vote"]) == 1
    assert "answers are wrong" in capsys.readouterr().err
    assert main([*calibrate, "--epsilon", "0.3"]) == 0  # thresholds know that each has a witness
    capsys.readouterr()
    write_csv("new.csv", [row | {"question": row["question"] + "?"} for row in rows])
    assert main(["evaluate", "new.csv", *NAMES, "--reference", "truth", *THRESHOLDS]) == 0
    out, err = capsys.readouterr()
    assert "end before the rule stops" in err
    assert "held 100.0 % of 120 prompts" in out
    assert "Set size" not in out  # most sets are not complete


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        ("thresholds", ["--alpha", "0.2"]),
        ("thresholds", ["--score", "vote"]),
        ("thresholds", ["--guarantee", "marginal"]),
        ("exit", ["--n-lambdas", "5"]),
        ("exit", ["--set-score", "sum"]),
        ("answer", ["--epsilon", "0.1"]),
        ("answer", ["--guarantee", "pac"]),
    ],
)
def test_options_of_another_policy_are_refused(logs, policy, option, capsys):
    path, names, judged = write_samples(logs, "csv", "samples", n=20)
    assert main(["calibrate", path, *names, *judged, "--policy", policy, *option, *KEY]) == 2
    said = capsys.readouterr().err
    assert f"{option[0]} must be given with --policy" in said
    assert f"got it with --policy {policy} instead" in said
    assert not Path("calibration.json").exists()


@pytest.mark.parametrize("policy", ["thresholds", "exit", "answer"])
def test_held_out_prompts_that_are_open_are_measured_as_both(logs, policy, capsys):
    path, names, judged = write_samples(logs, "csv", "samples", n=150)
    level = ["--alpha", "0.3"] if policy == "answer" else ["--epsilon", "0.4"]
    options = ["--policy", policy, *level, *KEY]
    assert main(["calibrate", path, *names, *judged, *options]) == 0
    new = list(rows_of(logs, 60, seed=2))
    evaluate = ["evaluate", "new.csv", *NAMES, *judged[-2:], *THRESHOLDS]
    write_csv("new.csv", new)
    capsys.readouterr()
    assert main(evaluate) == 0
    whole = capsys.readouterr().out
    assert "draws" in whole
    # every fifth prompt has one wrong draw alone
    cut = [
        row | ({"answer": "none", "right": False} if j % 25 == 0 else {})
        for j, row in enumerate(new)
        if j % 25 == 0 or j % 25 > 4
    ]
    write_csv("new.csv", cut)
    assert main(evaluate) == 0
    out, err = capsys.readouterr()
    n_open = int(re.search(r"the draws of (\d+) of \d+ prompts end before the rule", err)[1])
    assert n_open > 3
    pattern = rf"held ([\d.]+) to ([\d.]+) % of (\d+) \w+ \({n_open} of them open\)"
    ((low, high, n),) = re.findall(pattern, out)
    assert float(high) - float(low) == pytest.approx(100 * n_open / int(n), abs=0.11)
    assert float(low) < float(re.search(r"held ([\d.]+) %", whole)[1])
    assert "draws" not in out  # means of sets that are not complete are none
    assert main(["predict", "new.csv", *NAMES, *THRESHOLDS, "-o", "sets.csv"]) == 0
    with open("sets.csv", newline="", encoding="utf-8-sig") as file:
        needing = [row["prompt"] for row in csv.DictReader(file) if row["needs_draws"] == "true"]
    assert set(needing) <= {row["question"] for row in cut[::21]}
    assert len(needing) >= n_open


@pytest.mark.usefixtures("calibrated")
def test_prompts_that_calibrated_measure_nothing(logs, capsys):
    rows, judged = list(rows_of(logs)), [*NAMES, "--reference", "truth"]
    write_csv("mixed.csv", [*rows[:50], *rows_of(logs, 40, seed=2)])
    assert main(["evaluate", "mixed.csv", *judged, *THRESHOLDS]) == 0
    out, err = capsys.readouterr()
    assert "10 of 50 prompts calibrated, and are left out" in err
    assert "% of 40 prompts" in out
    assert "the promise is confirmed" in out
    write_csv("few.csv", list(rows_of(logs, 5, seed=2)))
    assert main(["evaluate", "few.csv", *judged, *THRESHOLDS]) == 0
    few = "the promise is not refuted (it takes more prompts to tell more)"
    assert few in capsys.readouterr().out
    assert main(["evaluate", "samples.csv", *judged, *THRESHOLDS]) == 2
    assert "all 60 did" in capsys.readouterr().err


def test_so_do_those_that_calibrated_in_python(logs, capsys):
    rows, judged = list(rows_of(logs)), [*NAMES, "--reference", "truth"]
    questions, references, draws = map(list, zip(*logs.sums(60, 5, 0)))
    generator = CachedGenerator(PrecomputedGenerator(questions, draws), key=KEY[-1])
    parts = {"k_max": 5, "epsilon": 0.4, "quality": "self_consistency", "random_state": 0}
    ConformalSampler(generator, **parts).fit(questions, references).save_calibration(
        "calibration.json"
    )
    write_csv("mixed.csv", [*rows[:50], *rows_of(logs, 40, seed=2)])
    assert main(["evaluate", "mixed.csv", *judged, *THRESHOLDS]) == 0
    assert "10 of 50 prompts calibrated, and are left out" in capsys.readouterr().err


@pytest.mark.parametrize("judged", [["--label", "right"], ["--reference", "truth"]])
def test_another_judge_than_that_of_calibration_is_refused(logs, judged, capsys):
    write_csv("samples.csv", list(rows_of(logs)))
    write_csv("new.csv", list(rows_of(logs, 40, seed=1)))
    assert main(["calibrate", "samples.csv", *NAMES, *judged, *KEY, "--epsilon", "0.4"]) == 0
    for other in (["--label", "right"], ["--reference", "truth"]):
        status = main(["evaluate", "new.csv", *NAMES, *other, *THRESHOLDS])
        assert status == (0 if other == judged else 2)
    assert "SAMPLES must be judged as in calibration" in capsys.readouterr().err
    with pytest.raises(SystemExit):  # the thresholds tell it
        main(["evaluate", "new.csv", *NAMES, *judged, *THRESHOLDS, "--admission", "rouge_l"])


@pytest.mark.parametrize("options", [["--epsilon", "0.1"], ["--epsilons", "0.1"], []])
def test_evaluate_takes_nothing_that_it_would_ignore(logs, options):
    write_csv("samples.csv", list(rows_of(logs)))
    command = ["evaluate", "samples.csv", *NAMES, "--reference", "truth"]
    with pytest.raises(SystemExit):
        main([*command, *(THRESHOLDS if options else []), *options])
    assert [path.name for path in Path().iterdir()] == ["samples.csv"]


def test_any_row_of_a_prompt_tells_its_reference(logs, capsys):
    rows, judged = list(rows_of(logs)), [*NAMES, *KEY, "--reference", "truth", "--epsilon", "0.4"]
    some = [row | {"truth": row["truth"] * (j % 5 == 3)} for j, row in enumerate(rows)]
    write_csv("some.csv", some)
    write_csv("none.csv", [row | {"truth": ""} for row in some[:5]] + some[5:])
    assert main(["calibrate", "some.csv", *judged]) == 0
    assert main(["calibrate", "none.csv", *judged]) == 2
    said = f"the reference of {rows[0]['question']!r} must be given in the field 'truth', of this"
    assert f"the row that ends on line 2 of none.csv: {said}" in capsys.readouterr().err
    write_csv("two.csv", rows[:7] + [rows[7] | {"truth": "another"}] + rows[8:])
    assert main(["calibrate", "two.csv", *judged]) == 2
    err = capsys.readouterr().err
    assert f"line 9 of two.csv: the reference of {rows[7]['question']!r} must be one" in err
    assert "got 'another' in the field 'truth' instead of" in err


@pytest.mark.parametrize(("name", "delimiter"), [("s.csv", ";"), ("s.csv", "\t"), ("s.tsv", "\t")])
def test_tables_with_other_delimiters(logs, name, delimiter):
    said = "response, said" if name == "s.tsv" else "response"
    Path(name).write_text(f'prompt{delimiter}{said}\na, b{delimiter}"x\ny"\n')
    names = {"prompt": "prompt", "response": said}
    log = _logs.SampleLog.of(_logs.read_records(name), names)
    assert (log.prompts, log.draws[0][0].response) == (["a, b"], "x\ny")


def test_lines_of_several_filters_are_no_draws(logs, capsys):
    lines = [
        line | {"filter": name, "exact_match": line["exact_match"] if name == "one" else 0.0}
        for line in logs.lm_eval_lines(60, 1)
        for name in ("one", "other")
    ]
    write_json_lines("samples.jsonl", lines)
    assert main(["calibrate", "samples.jsonl", *KEY, "--epsilon", "0.8"]) == 2
    assert "['one', 'other']" in capsys.readouterr().err
    assert main(["calibrate", "samples.jsonl", *KEY, "--epsilon", "0.8", "--filter", "one"]) == 0
    assert "60 prompts, 1 draw each" in capsys.readouterr().out
    assert main(["calibrate", "samples.jsonl", *KEY, "--epsilon", "0.8", "--filter", "other"]) == 1


@pytest.mark.parametrize("option", ["--label", "--quality"])
def test_a_metric_of_the_first_response_judges_no_others(logs, option, capsys):
    write_json_lines("log.jsonl", logs.lm_eval_lines())
    assert main(["calibrate", "log.jsonl", *KEY, option, "exact_match"]) == 2
    error = capsys.readouterr().err
    assert "5 responses, got 'exact_match' instead" in error
    assert "of the first response alone" in error


def test_responses_of_a_filter_are_draws_where_there_are_as_many(logs):
    (line,) = logs.lm_eval_lines(1, 2)
    raw = ["so: 1", "so: 2"]
    for filtered, shown in ((["1", "2"], ["1", "2"]), (["1"], raw), ([["1", "2"]], ["1", "2"])):
        write_json_lines("one.jsonl", [line | {"resps": [raw], "filtered_resps": filtered}])
        ((_, record),) = _logs.read_records("one.jsonl")
        assert record["responses"] == shown
    write_json_lines("one.jsonl", [line | {"resps": [["-1.0", "True"], ["-2.0", "False"]]}])
    with pytest.raises(ValueError, match="got 2 requests"):
        list(_logs.read_records("one.jsonl"))


def test_what_inspect_writes_in_other_ways(logs):
    header, samples = logs.inspect_log(2, 2)
    for sample in samples:
        user = {"id": f"{sample['epoch']}", "role": "user", "content": sample["input"]}
        message = sample["output"]["choices"][0]["message"]
        message["content"] = [
            {"type": "reasoning", "reasoning": "..."},
            {"type": "text", "text": sample["output"].pop("completion")},
        ]
        sample["input"] = [user]
        sample["scores"]["includes"] = {"value": "C"}
        tokens = {"content": [{"token": "1", "logprob": -0.5}, {"token": "2", "logprob": -0.25}]}
        sample["output"]["choices"][0]["logprobs"] = tokens
    logs.write_eval("log.eval", header, samples[::-1])  # which is not the order of epochs
    names = {name: name for name in ("prompt", "response", "logprob", "n_tokens", "label")}
    log = _logs.SampleLog.of(_logs.read_records("log.eval"), names | {"label": "match"})
    questions, results, draws = zip(*logs.sums(2, 2))
    assert sorted(one[0]["content"] for one in log.prompts) == sorted(questions)
    for prompt, row, said in zip(log.prompts, log.draws, log.verdicts):
        i = questions.index(prompt[0]["content"])
        assert [draw.response for draw in row] == draws[i]
        assert {(draw.logprob, draw.n_tokens) for draw in row} == {(-0.75, 2)}
        assert said == {draw: draw == results[i] for draw in draws[i]}


def test_archives_by_zstandard_are_read_where_zipfile_learns_it(logs):
    if sys.version_info < (3, 14):
        pytest.importorskip("zipfile_zstd")
    header, samples = logs.inspect_log(3, 2)
    logs.write_eval("one.eval", header, samples)
    logs.write_eval("other.eval", header, samples, compression=93)
    one, other = (
        [record for _, record in _logs.read_records(f"{name}.eval")] for name in ("one", "other")
    )
    assert one == other


def broken(logs, how):
    """An archive of Inspect that is not to be read."""
    header, samples = logs.inspect_log(3, 2)
    changed = {
        "a run that was stopped": ({"status": "cancelled"}, {}),
        "a sample that failed": ({}, {"error": {"message": "no answer"}}),
        "a sample that counts no more": ({}, {"invalidation": {"author": "me"}}),
        "a sample without a verdict": ({}, {"scores": {}}),
        "no samples": ({}, None),
    }
    in_header, in_sample = changed.get(how, ({}, {}))
    samples[1] |= in_sample or {}
    logs.write_eval("log.eval", header | in_header, [] if in_sample is None else samples)
    content = Path("log.eval").read_bytes()
    if how == "a run that goes on":
        content = content.replace(b"header.json", b"healer.json")
    elif how == "damage":
        content = content[:800] + b"\0" * 40 + content[840:]
    elif how == "no archive":
        content = b"PK"
    elif how == "samples in chunks":
        with zipfile.ZipFile("log.eval", "a") as archive:
            archive.writestr("samples/9_epoch_1/sample.json", "{}")
        return
    elif how in ("Zstandard", "a later version"):  # as the directory of the archive names them
        place = content.rindex(b"PK\x01\x02") + (10 if how == "Zstandard" else 6)
        content = content[:place] + b"\x5d\0" + content[place + 2 :]
    Path("log.eval").write_bytes(content)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("a run that was stopped", "status 'success', got 'cancelled'"),
        ("a run that goes on", "status 'success', got None"),
        ("a sample that failed", "samples/1_epoch_2.json in log.eval: it failed"),
        ("a sample that counts no more", "invalidated"),
        ("a sample without a verdict", "label must be known for every draw, or for none"),
        ("no samples", "must hold samples, got none in log.eval"),
        ("damage", "cannot be unpacked"),
        ("no archive", "not an archive"),
        ("a later version", "not an archive of Inspect: zip file version 9.3"),
        ("samples in chunks", "inspect log convert --to json"),
        ("large samples", "must be at most 100 bytes"),
        ("many samples", "log.eval must unpack to at most 2000 bytes of samples, is "),
        ("Zstandard", "pip install"),
    ],
)
def test_archives_that_are_not_to_be_read(logs, how, said, monkeypatch, capsys):
    broken(logs, how)
    monkeypatch.setitem(sys.modules, "zipfile_zstd", None)
    monkeypatch.setattr(_logs, "_LARGEST_MEMBER", 100 if how == "large samples" else 2**20)
    monkeypatch.setattr(_logs, "_LARGEST_ARCHIVE", 2000 if how == "many samples" else 2**20)
    assert main(["calibrate", "log.eval", *KEY]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("compression", "said"), [(8, 99), (12, 99), (14, 99), (93, 99), (93, 2**22)]
)
def test_no_more_is_unpacked_than_a_member_says_that_it_holds(logs, compression, said):
    if compression == 93 and sys.version_info < (3, 14):
        pytest.importorskip("zipfile_zstd")
    header, samples = logs.inspect_log(1, 1)
    # zeros take no room, and what is between them two pages each
    rng = random.Random(0)
    samples[0]["metadata"] = {k: rng.randbytes(2**13).hex() + "0" * 2**22 for k in range(16)}
    logs.write_eval("log.eval", header, samples, compression=compression)
    content = Path("log.eval").read_bytes()
    place = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1) + 24
    Path("log.eval").write_bytes(
        content[:place] + said.to_bytes(4, "little") + content[place + 4 :]
    )
    tracemalloc.start()
    # of other methods the header is refused already
    refused = "compressed as Inspect does" if compression in (12, 14) else "1_epoch_1"
    with pytest.raises(ValueError, match=refused):
        list(_logs.read_records("log.eval"))
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


ROW = "prompt,response,label\na,x,1\n"
TOO_DEEP_TO_COMPARE = (
    '{"prompt": "a", "response": "b", "reference": ' + "[" * 900 + "]" * 900 + "}\n"
)


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("s.csv", ROW, ["--prompt", "question"], "no field 'question'; it has ['prompt', 'resp"),
        ("s.csv", ROW, ["--reference", "truth"], "no field 'truth'"),
        ("s.csv", ROW, ["--responses", "response"], "responses must be a list"),
        ("s.csv", ROW, ["--logprob", "response"], "line 2 of s.csv: the fields of a draw"),
        ("s.csv", ROW + "b,y,\n", [], "label must be known for every draw, or for none"),
        ("s.csv", ROW + "b,y\n", [], "line 3 of s.csv must have 3 fields"),
        ("s.csv", ROW + "b,y,0,1\n", [], "line 3 of s.csv must have 3 fields"),
        ("s.csv", ROW + ",y,0\n", ["--label", "response"], "a label must be a verdict"),
        ("s.csv", ROW + 'b,"y', [], "s.csv is not a CSV file: unexpected end of data, before the"),
        ("s.csv", b"prompt\nZ\xfcrich\n", [], "s.csv is not a CSV file in UTF-8"),
        ("s.csv", "prompt,response,label,response\na,x,1,y\n", [], "name each column once"),
        ("s.csv", ROW + " ,y,0\n", [], "the prompt is missing"),
        ("s.csv", "", [], "must hold samples, got none in s.csv"),
        ("s.csv", "prompt,response\na,x\n", [], "must have verdicts or references"),
        ("s.csv", ROW, ["--data", "data.npz"], "input must be SAMPLES"),
        ("s.csv", ROW, ["-o", "s.csv"], "--output must be none of the inputs"),
        ("s.csv", ROW, ["--admission", "best"], "admission must"),
        ("s.jsonl", "", [], "must hold samples"),
        ("s.jsonl", "[1]", [], "line 1 of s.jsonl"),
        ("s.jsonl", '{"prompt": "a", "responses": ["x", "y"], "label": 1}', [], "label must be"),
        ("s.jsonl", '{"prompt": "a", "responses": ["x", "y"], "label": [1]}', [], "length 2"),
        ("s.jsonl", 2 * TOO_DEEP_TO_COMPARE, [], "recursion"),
        ("s.json", "{}", [], "must be a log of Inspect with its samples"),
        (
            "s.json",
            '{"status": "success", "samples": [{"epoch": 1}]}',
            [],
            "sample 0 of s.json: it has no",
        ),
        ("s.json", "[" * 10_000, [], "s.json: it is not JSON"),
        ("s.parquet", "no table", [], "Parquet"),
        ("s.txt", ROW, [], "must end in one of .csv"),
        ("none.csv", None, [], "none.csv"),
    ],
)
def test_wrong_use_exits_with_2(logs, name, text, options, said, capsys):
    if text is not None:
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["calibrate", name, *KEY, *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sklearn-clm calibrate: error: ")
    assert said in error
    assert error.count("\n") == 1


def test_a_cell_may_be_long(logs):
    write_csv("s.csv", [{"prompt": "a", "response": "b" * 200_000}])
    log = _logs.SampleLog.of(
        _logs.read_records("s.csv"), {"prompt": "prompt", "response": "response"}
    )
    assert len(log.draws[0][0].response) == 200_000


def test_texts_of_a_table_stay_texts(logs):
    write_csv("s.csv", [{"prompt": "", "response": one} for one in ("007", "NA", "", "1.0")][1:])
    with pytest.raises(ValueError, match="prompt"):
        _logs.SampleLog.of(_logs.read_records("s.csv"), {"prompt": "none", "response": "response"})
    write_csv("s.csv", [{"prompt": "None", "response": one} for one in ("007", "NA", "", "1.0")])
    names = {"prompt": "prompt", "response": "response"}
    log = _logs.SampleLog.of(_logs.read_records("s.csv"), names)
    assert log.prompts == ["None"]
    assert [draw.response for draw in log.draws[0]] == ["007", "NA", "", "1.0"]


def test_commands_of_the_readme_run_word_for_word(logs):
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    commands = re.findall(r"^sklearn-clm (.*)$", readme, re.MULTILINE)
    write_csv("samples.csv", list(rows_of(logs, 200)))
    write_csv("new.csv", list(rows_of(logs, 20, seed=2)))
    Path("examples").symlink_to(EXAMPLES)
    for command in commands:
        words = [sorted(glob.glob(word)) or [word] for word in shlex.split(command)]
        assert main([*chain.from_iterable(words)]) == 0
    assert len(commands) == 4


def named(rows, **further):
    """Rows under the names of columns that need no option."""
    for i, row in enumerate(rows):
        known = {"prompt": row["question"], "response": row["answer"], "reference": row["truth"]}
        yield known | {name: value(i, row) for name, value in further.items()}


def test_commands_of_the_chapters_run_as_printed(logs, capsys):
    commands = [
        command
        for path in sorted(EXAMPLES.parent.glob("sklearn_clm/*/__init__.py"))
        for command in re.findall(r"^    sklearn-clm (.*)$", path.read_text("utf-8"), re.M)
    ]
    columns = {
        "kind": lambda i, row: ["one", "two"][i // 5 % 2],
        "question": lambda i, row: row["question"],
        "text": lambda i, row: row["answer"],
        "gold": lambda i, row: row["truth"],
    }
    write_csv("samples.csv", list(named(rows_of(logs, 300), **columns)))
    verdicts = {"verdict": lambda i, row: "yes" if row["right"] else "no"}
    judged = list(named(rows_of(logs, 200, seed=5), **verdicts))
    write_csv(
        "judged.csv", [{k: row[k] for k in ("prompt", "response", "verdict")} for row in judged]
    )
    write_csv("new.csv", list(named(rows_of(logs, 40, seed=2))))
    write_csv("held_out.csv", list(named(rows_of(logs, 60, seed=3))))
    Path("logs/run").mkdir(parents=True)
    write_json_lines("logs/run/samples_TASK_1.jsonl", logs.lm_eval_lines(150, 5, 0))
    logs.write_eval("logs/LOG.eval", *logs.inspect_log(150, 5, 0))
    for command in commands:
        words = [sorted(glob.glob(word)) or [word] for word in shlex.split(command)]
        assert main([*chain.from_iterable(words)]) == 0, capsys.readouterr().err
    assert len(commands) == 8
    said = capsys.readouterr().out
    assert "Right is what support team, November judged to be right." in said
    assert "the others escalated" in said
    with open("answers.csv", newline="", encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    assert {row["answered"] for row in answers} == {"true", "false"}
    assert all((row["answered"] == "true") == bool(row["response"]) for row in answers)


def test_groups_are_a_column(logs, capsys):
    kinds = {"kind": lambda i, row: ["easy", "hard", "rare"][0 if i < 400 else 1 + (i > 794)]}
    rows = list(named(rows_of(logs, 160), **kinds))
    for i, row in enumerate(rows):
        if row["kind"] == "hard" and i % 2:
            row["response"] = "?"
    write_csv("samples.csv", rows)
    groups = ["--groups", "kind"]
    assert main(["calibrate", "samples.csv", *KEY, *groups, "--report", "report.md"]) == 0
    said = capsys.readouterr().out
    assert "For each certified group on its own" in said
    assert "Group 'easy': Thresholds" in said
    assert "Group 'hard': Thresholds" in said
    assert "Group 'rare' is null: the number of calibration prompts is" in said
    content = json.loads(Path("calibration.json").read_text("utf-8"))
    # the file is that of the same groups in Python
    prompts = list({row["prompt"]: row for row in rows}.values())
    draws = [[row["response"] for row in rows if row["prompt"] == one["prompt"]] for one in prompts]
    sampler = ConformalSampler(
        PrecomputedGenerator([one["prompt"] for one in prompts], draws, key=KEY[1]),
        k_max=5,
        quality="self_consistency",
        random_state=0,
    )
    truths, names = ([one[name] for one in prompts] for name in ("reference", "kind"))
    with pytest.warns(NullCalibrationWarning, match="Group 'rare' is null"):
        sampler.fit([one["prompt"] for one in prompts], truths, groups=names)
    sampler.save_calibration("python.json")
    expected = json.loads(Path("python.json").read_text("utf-8"))
    rules, same = (
        [[one["group"], one["kind"], one.get("lambda_hat")] for one in each["rules"]]
        for each in (content, expected)
    )
    assert rules == same
    kinds = {"kind": lambda i, row: ["easy", "hard"][i // 150]}
    write_csv("new.csv", list(named(rows_of(logs, 60, seed=3), **kinds)))
    assert main(["evaluate", "new.csv", *THRESHOLDS]) == 2
    assert "groups must be" in capsys.readouterr().err
    assert main(["evaluate", "new.csv", *THRESHOLDS, *groups]) == 0
    measured = capsys.readouterr().out
    assert "Group 'easy': Promised 70 %" in measured
    assert "98.3 % interval" in measured
    assert "Group 'rare': nothing is certified." in measured
    assert main(["predict", "new.csv", *THRESHOLDS, *groups, "-o", "sets.csv"]) == 0
    with open("sets.csv", newline="", encoding="utf-8") as file:
        remarks = {row["remarks"] for row in csv.DictReader(file)}
    assert all("group 'easy'" in one or "group 'hard'" in one for one in remarks)
    write_csv("samples.csv", [*rows, rows[0] | {"kind": "hard"}])
    assert main(["calibrate", "samples.csv", *KEY, *groups]) == 2
    assert "the group of" in capsys.readouterr().err
    assert main(["calibrate", "--data", "data.npz", *groups]) == 2
    assert "--groups must name a column of SAMPLES" in capsys.readouterr().err


def test_a_pilot_plans_answers(logs, capsys):
    write_csv("samples.csv", list(rows_of(logs, 60)))
    pilot = ["plan", "samples.csv", *NAMES, *KEY, "--reference", "truth"]
    assert main([*pilot, "--policy", "answer", "--alpha", "0.2"]) == 0
    said = capsys.readouterr().out
    assert "Plan of answers from a pilot of 60 prompts with 5 draws each: alpha = 0.2" in said
    assert "5 of 5 votes" in said


def test_who_gave_the_verdicts_is_named(logs, capsys):
    write_csv("samples.csv", list(rows_of(logs, 100)))
    team = ["--judge", "support team, November", "--epsilon", "0.4"]
    assert main(["calibrate", "samples.csv", *NAMES, *KEY, "--label", "right", *team]) == 0
    said = capsys.readouterr().out
    assert "Right is what support team, November judged to be right." in said
    assert "admission: verdicts of the file." in said
    assert "do not name" not in said
    write_csv("new.csv", list(rows_of(logs, 20, seed=2)))
    assert main(["predict", "new.csv", *NAMES, *THRESHOLDS]) == 0
    (first, *_) = map(json.loads, capsys.readouterr().out.splitlines())
    assert "Right is what support team, November judged" in first["guarantee"]
    assert "provenance unknown" not in first["guarantee"]
    assert main(["calibrate", "samples.csv", *NAMES, *KEY, "--reference", "truth", *team]) == 2
    assert "--judge must name who gave the verdicts" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["early.eval", "early.json"])
def test_a_log_that_stopped_early_is_read_up_to_a_gap(logs, name, capsys):
    header, samples = logs.inspect_log(150, 5, 0)
    right = {}
    for one in samples:
        if one["scores"]["match"]["value"] == "C":
            right[one["id"]] = min(one["epoch"], right.get(one["id"], 9))
    ended = [one for one in samples if one["epoch"] > right.get(one["id"], 9)]
    stops = [{"id": one["id"], "epoch": one["epoch"], "reason": "a success"} for one in ended]
    header["results"]["early_stopping"] = {"manager": "m", "early_stops": stops, "metadata": {}}
    # one epoch was under way when an earlier one was right
    late = next(one for one in ended if one["epoch"] == right[one["id"]] + 2)
    kept = [one for one in samples if one not in ended or one is late]
    if name.endswith("eval"):
        logs.write_eval(name, header, kept)
    else:
        Path(name).write_text(json.dumps({**header, "samples": kept}))
    assert main(["calibrate", name, *KEY, "--epsilon", "0.15"]) == 0
    out, err = capsys.readouterr()
    assert "150 prompts, 1 to 5 draws each" in out
    assert f"1 of {len(kept)} samples of a log of Inspect are left out" in err


def test_the_script_of_the_package_is_main():
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"sklearn-clm": f"{main.__module__}:main"}


@pytest.mark.parametrize("header", [[], None, {"status": ["success"]}])
def test_an_archive_of_another_header_is_named(tmp_path, header, capsys):
    with zipfile.ZipFile(path := tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(header))
    assert main(["plan", str(path)]) == 2
    assert "status 'success'" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["thresholds", "exit", "answer"])
def test_every_policy_is_calibrated_applied_and_measured_from_the_shell(logs, policy, capsys):
    path, names, judged = write_samples(logs, "csv", "samples", n=150)
    level = ["--alpha", "0.3"] if policy == "answer" else ["--epsilon", "0.4"]
    options = ["--policy", policy, *level, *KEY]
    assert main(["calibrate", path, *names, *judged, *options, "--report", "report.html"]) == 0
    said = capsys.readouterr().out
    promise = "where one is given, is right" if policy == "answer" else "holds an admissible"
    assert promise in said
    new, *_ = write_samples(logs, "csv", "new", 60, seed=2)
    assert main(["predict", new, *names, *THRESHOLDS, "-o", "sets.jsonl"]) == 0
    sets = list(map(json.loads, Path("sets.jsonl").read_text("utf-8").splitlines()))
    # the file is that of the same policy in Python
    rows = [(one["question"], [one["answer"]]) for one in rows_of(logs, 60, 2)]
    draws = {}
    for question, (answer,) in rows:
        draws.setdefault(question, []).append(answer)
    classes = {"thresholds": None, "exit": ExitPolicy(), "answer": AnswerPolicy(alpha=0.3)}
    sampler = ConformalSampler(
        PrecomputedGenerator(list(draws), list(draws.values()), key=KEY[1]),
        k_max=5,
        epsilon=0.3 if policy == "answer" else 0.4,
        quality="self_consistency",
        policy=classes[policy],
        random_state=0,
    )
    expected = sampler.load_calibration("calibration.json").predict(list(draws))
    assert [one["responses"] for one in sets] == [list(one.responses) for one in expected]
    if policy == "answer":
        assert [one["answered"] for one in sets] == [one.answered for one in expected]
    capsys.readouterr()
    assert main(["evaluate", new, *names, *judged, *THRESHOLDS]) == 0
    measured = capsys.readouterr().out
    assert ("others escalated" in measured) == (policy == "answer")
    assert "the promise is " in measured
