"""What people would say of answers, from a hundred of their verdicts: a model judges the rest.

    python examples/audited_judge.py [--page]

FiD answered 1,938 questions of TriviaQA, and people have said of each answer whether it is right
(EVOUNA, in `evouna`). Two judges stand for the model: a classifier that has learnt from verdicts
on other questions, and the rule that an answer must hold a reference word for word. The claim is
about people: at most a quarter of the answers are wrong. Who certifies it, from how many verdicts?

1. A pilot plans the audit, for either judge: the judge has said of 200 answers whether they are
   right, and people of those that it refuses.
2. One calibration in which the page asks for verdicts. Here the recorded ones are given; with
   --page you are the person, in the browser.
3. How often each design certifies, over random splits, and after how many prompts with verdicts;
   by betting people stop as soon as it is decided. The rule is strict: it refuses a third of what
   people admit, and its audit is worth less than nothing; the planner says so.
"""

import argparse
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import HumanJudge
from sklearn_clm.evaluation import plan_audits
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.judging import JudgingSession, serve
from sklearn_clm.policies import AuditedJudging

EPSILON, DELTA, N_PILOT = 0.25, 0.05, 200
JUDGES = {"classifier": "model", "word for word": "holds_reference"}
DESIGNS = (
    ("classifier", "two-phase", 100),
    ("classifier", "betting", 240),
    ("classifier", "people", 100),
    ("classifier", "people", 240),
    ("word for word", "two-phase", 100),
)


def reference_of(line: dict) -> str:
    """All references of a question as one: the verdicts are about all of them."""
    return "; ".join(line["references"])


class Known:
    """Verdicts that are in the file: an admission."""

    def __init__(self, lines: list[dict], name: str) -> None:
        self.name = name
        self.verdicts = {(reference_of(line), line["answer"]): line[name] for line in lines}

    def __call__(self, reference: str, answer: str) -> bool:
        return self.verdicts[reference, answer]

    def fingerprint(self) -> str:
        return f"Known {self.name}"


def alike(question: str, draw) -> float:
    """Quality of an answer; with one for each question there is none to prefer."""
    return 1.0


# %% The three steps
def main(argv: list[str] | None = None) -> dict[tuple[str, str, int], float]:
    """Run the script and return the share of certified calibrations of each design."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100, help="random splits")
    parser.add_argument("--page", action="store_true", help="judge in the browser")
    args = parser.parse_args(argv)
    path = Path(__file__).parent / "evouna" / "trivia_qa.jsonl"
    with path.open(encoding="utf-8") as file:
        ordered = [json.loads(line) for line in file]
    lines = [ordered[i] for i in np.random.default_rng(1).permutation(len(ordered))]
    pilot, lines = lines[:N_PILOT], lines[N_PILOT:]

    rejected = {}
    for name, field in JUDGES.items():
        plan = plan_audits(
            [line[field] for line in pilot],
            [None if line[field] else line["people"] for line in pilot],
            n_prompts=len(lines) * 2 // 3,
            epsilon=EPSILON,
            delta=DELTA,
        )
        rejected[name] = plan.rejected
        print(f"Pilot, {name}: {plan}")

    ask_on_the_page(lines, rejected["classifier"], args.page)
    found = {}
    print(f"\n{'judge':14} {'design':10} at most  on average  certified of {args.trials} splits")
    for name, design, n_audits in DESIGNS:
        people = Known(lines, "people")
        judging = AuditedJudging(people, n_audits=n_audits, design=design, rejected=rejected[name])
        sampler, data = collected(lines, name, judging)
        certified = n_made = 0
        for trial in range(args.trials):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sampler.set_params(random_state=trial).calibrate(data)
            certified += sampler.calibration_.certified
            audit = sampler.result_.audit
            n_made += n_audits if audit is None else len(audit.rows)
        found[name, design, n_audits] = share = certified / args.trials
        print(f"{name:14} {design:10} {n_audits:7d}  {n_made / args.trials:10.0f}  {share:.2f}")
    return found


def collected(lines: list[dict], name: str, judging: AuditedJudging):
    """A sampler of the answers, one for each question, and what it has collected."""
    questions = [line["question"] for line in lines]
    sampler = ConformalSampler(
        PrecomputedGenerator(questions, [[line["answer"]] for line in lines]),
        k_max=1,
        epsilon=EPSILON,
        delta=DELTA,
        admission=Known(lines, JUDGES[name]),
        quality=alike,
        similarity="exact_match",
        judging=judging,
        random_state=0,
    )
    return sampler, sampler.collect(questions, [reference_of(line) for line in lines])


# %% A person, a page, a hundred verdicts
def ask_on_the_page(lines: list[dict], rejected: float, in_browser: bool) -> None:
    """Calibrate with a HumanJudge; the page shows witnesses, and not what the model says."""
    said = {line["question"]: line["people"] for line in lines}
    with tempfile.TemporaryDirectory() as folder:
        judge = HumanJudge(Path(folder, "verdicts.sqlite"), question="Is the answer right?")
        judging = AuditedJudging(judge, n_audits=100, design="two-phase", rejected=rejected)
        sampler, data = collected(lines, "classifier", judging)

        def calibrate() -> str:
            claim = sampler.calibrate(data).calibration_.claim
            return f"{claim.sentence()} {claim.audit}"

        if in_browser:
            serve(judge, calibrate)
            return
        session = JudgingSession(judge, calibrate)
        turn = session.turn()
        print(f"\nThe page: {turn.estimate}")
        while turn.pair is not None:
            key = "y" if said[turn.pair.asked.prompt] else "n"
            turn = session.act(turn.pair.id, key)
        print(f"{turn.n_judged} verdicts later: {turn.conclusion}")


if __name__ == "__main__":
    main()
