"""A policy of somebody else, in one file: stop once so many distinct texts were drawn."""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.outcome import Outcome
from sklearn_clm.calibration.path import Column, ColumnPath
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.policies import AnswerPolicy, AuditedJudging, LazyJudging
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.batched import BatchedRule, OpenSet
from sklearn_clm.policies.rules import Expected, Rule, SetCounts, SetRule
from tests.toy import questions, toy_sampler


def sets_of(data, n_texts):
    """The distinct texts of each prompt, up to so many."""
    draws = np.arange(data.k_max)
    is_new = (data.first == draws) & (draws < data.n_draws[:, np.newaxis])
    reached = np.cumsum(is_new, axis=1) >= n_texts
    reached[:, -1] = True
    samples = reached.argmax(axis=1) + 1
    return Column(is_new & (draws < samples[:, np.newaxis]), samples)


class TextPath(ColumnPath):
    """Numbers of texts, from the largest."""

    what = "number of texts"

    def __init__(self, table, rows, numbers):
        super().__init__(table, rows)
        self.numbers = numbers

    def __len__(self):
        return len(self.numbers)

    def column_of(self, step, data):
        return sets_of(data, self.numbers[step])

    def only(self, step):
        return TextPath(self.table, self.rows, self.numbers[[step]])


class StoppingAtTexts:
    """The rule on one prompt, draw by draw."""

    def __init__(self, n_texts, k_max):
        self.n_texts, self.k_max = n_texts, k_max
        self.texts, self.n_samples, self.stopped = {}, 0, False

    @property
    def done(self):
        return self.stopped or self.n_samples == self.k_max

    def update(self, text):
        self.texts.setdefault(text, []).append(self.n_samples)
        self.n_samples += 1
        self.stopped = len(self.texts) >= self.n_texts and self.n_samples < self.k_max


class BatchedTexts(BatchedRule):
    def __init__(self, rule, scores):
        super().__init__(scores)
        self._rule = rule

    def new(self, index):
        return OpenSet(index, StoppingAtTexts(self._rule.n_texts, self._rule.k_max))

    def update(self, sets, draws, quality, start):
        for one in sets:
            one.rule.update(one.next_text())

    def outcome(self, open_set):
        texts = open_set.rule.texts
        return list(texts.values()), float(len(texts))


@dataclass(frozen=True)
class TextRule(SetRule):
    claim: Claim
    n_texts: int
    k_max: int
    outcome: Outcome | None = field(default=None, repr=False)
    shares_of_draws: tuple[float, ...] = field(default=(), compare=False, repr=False)
    tested: SetCounts | None = field(default=None, compare=False, repr=False)

    kind: ClassVar[str] = "distinct texts"
    heading: ClassVar[str] = "Distinct texts"
    lambda_hat: ClassVar[None] = None

    @property
    def words(self):
        return f"{self.n_texts} texts"

    @property
    def costs(self):
        return (
            (np.nan, np.nan) if self.outcome is None else (self.outcome.size, self.outcome.samples)
        )

    def facts(self, set_score):
        return [("texts", str(self.n_texts), "stop once so many distinct texts were drawn")]

    def expected(self, data: Any, set_score: Any) -> Expected | None:
        found = self.outcome
        if found is None:
            return None
        return Expected(found.errors, {"size": found.sizes, "draws": found.draws})

    def batched(self, scores):
        return BatchedTexts(self, scores)

    def shown(self, data, set_score):
        return sets_of(data, self.n_texts).shown

    def content(self):
        return {"n_texts": self.n_texts}

    @classmethod
    def of_content(cls, claim, content, k_max):
        return cls(claim, int(content["n_texts"]), k_max)


class DistinctTexts(Policy):
    rule: ClassVar[type[Rule]] = TextRule
    guarantee = "pac"

    def search(self, table, rows, claim, judging):
        return np.arange(table.k_max, 0, -1)

    def path_on(self, learnt, table, part, rows):
        return TextPath(table, rows, learnt)

    def learnt_of(self, path):
        return path.numbers

    def rule_at(self, path, outcome, claim):
        return TextRule(claim, int(path.numbers[0]), path.table.k_max)


# --- nothing else has to change --------------------------------------------------------------

PROMPTS, REFERENCES = questions(500)
FITTED, NEW = PROMPTS[:360], PROMPTS[360:]
OPTIONS = {"policy": DistinctTexts(), "k_max": 5, "epsilon": 0.35, "delta": 0.1}


def fitted(**options):
    return toy_sampler(**OPTIONS | options).fit(FITTED, REFERENCES[:360])


def shown(sampler):
    return [(one.responses, one.n_samples) for one in sampler.predict(NEW)]


@pytest.fixture(scope="module")
def eager():
    return fitted()


def test_it_is_calibrated_and_predicts_what_was_calibrated(eager):
    rule = eager.calibration_.rule
    assert rule.certified
    assert 1 <= rule.n_texts < 5
    again = [(one.responses, one.n_samples) for one in eager.predict(FITTED)]
    members, draws = sets_of(eager.calibration_data_, rule.n_texts)
    assert [n for _, n in again] == draws.tolist()
    assert [len(texts) for texts, _ in again] == members.sum(axis=1).tolist()


@pytest.mark.parametrize("judging", ["lazy", LazyJudging(optimization_judgements=0)])
def test_lazily_it_finds_the_same_by_fewer_verdicts_and_draws(eager, judging):
    lazy = fitted(judging=judging)
    assert lazy.calibration_.rule.n_texts == eager.calibration_.rule.n_texts
    assert lazy.n_judgements_ < eager.n_judgements_
    assert shown(lazy) == shown(eager)
    of_lazy = lazy.calibration_.rule.outcome
    of_eager = eager.calibration_.rule.outcome
    assert of_lazy.sizes.tolist() == of_eager.sizes.tolist()
    assert of_lazy.draws.tolist() == of_eager.draws.tolist()


def test_sets_show_the_quality_of_draws_at_which_its_rule_does_not_look(eager):
    for one, quality in zip(eager.predict(FITTED), eager.calibration_data_.quality):
        # a text is as good as its best draw
        draws_of_text = [[first, *later] for first, later in zip(one.indices, one.repeats)]
        assert one.quality.tolist() == [quality[draws].max() for draws in draws_of_text]


def test_it_is_saved_and_loaded(eager, tmp_path):
    path = tmp_path / "texts.json"
    eager.save_calibration(path)
    assert shown(clone(eager).load_calibration(path)) == shown(eager)


def test_equal_numbers_of_another_type_have_one_digest(eager):
    @dataclass(frozen=True)
    class Plain(TextRule):
        kind: ClassVar[str] = "plain numbers of texts"

        def content(self):
            return {"n_texts": self.n_texts}

    record = eager.calibration_
    for python, numpy, other in ((3.0, np.float64(3.0), 2.0), (3, np.int64(3), 2)):
        rules = [Plain(record.claim, number, 5) for number in (python, numpy, other)]
        digests = [replace(record, rules={None: rule}).digest for rule in rules]
        assert digests[0] == digests[1] != digests[2]
    with pytest.raises(TypeError, match="must be values for JSON"):
        _ = replace(record, rules={None: Plain(record.claim, {1}, 5)}).digest


def test_a_rule_with_a_number_of_numpy_has_its_digest_in_a_file(eager, tmp_path):
    sampler = copy(eager)
    record = sampler.calibration_
    rules = {None: replace(record.rule, n_texts=np.int64(record.rule.n_texts))}
    sampler.calibration_ = replace(record, rules=rules)
    path = tmp_path / "texts.json"
    sampler.save_calibration(path)
    loaded = clone(eager).load_calibration(path)
    assert loaded.calibration_.digest == sampler.calibration_.digest == record.digest


def test_a_parameter_of_a_file_cannot_take_the_place_of_a_level(eager, tmp_path):
    class Careless(DistinctTexts):
        @property
        def described(self):
            return {**super().described, "epsilon": None, "delta": None}

    path = tmp_path / "texts.json"
    fitted(policy=Careless()).save_calibration(path)
    other = toy_sampler(**OPTIONS | {"policy": Careless(), "epsilon": 0.1})
    with pytest.raises(ValueError, match="made with another epsilon"):
        other.load_calibration(path)


def test_another_test_than_the_binomial_is_refused_without_its_choice():
    class Passing:
        def may_ask(self):
            return np.zeros((0, 0), dtype=bool)

    class Careless(DistinctTexts):
        def test_of(self, path, claim):
            return Passing()

    with pytest.raises(TypeError, match=r"Careless\.certify must be overridden"):
        fitted(policy=Careless())


@pytest.mark.parametrize("judging", ["lazy", AuditedJudging(len)])
def test_a_risk_that_labels_to_come_cannot_test_is_refused_before_any_draw(judging, tmp_path):
    class OfFew(Risk):
        about = "sets of three or fewer"
        promise = "the set for {who}, where it holds three or fewer, has an admissible response"
        counts_all = False

        def counts(self, sizes):
            return (sizes > 0) & (sizes <= 3)

    class Careless(DistinctTexts):
        risk = OfFew()

    log = tmp_path / "log"
    with pytest.raises(TypeError, match=r"OfFew\.counts must say"):
        fitted(policy=Careless(), judging=judging, log=log)
    assert not log.exists()
    # with all labels whoever counts is known
    assert fitted(policy=Careless(), log=log).calibration_.claim.about == OfFew.about
    assert log.exists()


def test_what_a_single_draw_errs_is_said_where_sets_of_one_count():
    class OfThree(Risk):
        about = "sets of three or more"
        promise = "the set for {who}, where it holds three or more, has an admissible response"
        counts_all = False

        def counts(self, sizes):
            return sizes >= 3

    class Large(DistinctTexts):
        risk = OfThree()

    for policy, is_said in ((DistinctTexts(), True), (Large(), False)):
        record = fitted(policy=policy, epsilon=0.6).calibration_
        assert record.certified
        assert record.achievable_epsilon.high < 0.6
        assert ("single draw" in str(record)) == is_said


def test_people_who_audit_need_a_step_that_is_expected_to_err_so_often():
    judging = AuditedJudging(lambda reference, response: response == reference, n_audits=50)
    with pytest.raises(ValueError, match="AnswerPolicy with score='learnt'"):
        fitted(judging=judging, policy=AnswerPolicy(score="vote"))


def test_reports_and_audits_know_it(eager):
    report = str(CalibrationReport.from_estimator(eager))
    assert "stop once so many distinct texts were drawn" in report
    judging = AuditedJudging(lambda reference, response: response == reference, n_audits=50)
    audited = fitted(judging=judging)
    assert audited.calibration_.rule.certified
    assert "by people's standard" in audited.calibration_.claim.sentence()
