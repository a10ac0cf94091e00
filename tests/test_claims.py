"""Claims through the estimator: what is selected, judged, shown and written."""

import json

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from sklearn_clm import (
    ComponentSelector,
    ComponentSet,
    ComponentSets,
    ConformalSampler,
    PredictionSet,
)
from sklearn_clm.caching import CachedSplitter, HumanJudge, VerdictsWanted
from sklearn_clm.calibration import component_learn_then_test, critical_count
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.judging._view import pair_view
from sklearn_clm.metrics import component_loss, component_recall
from sklearn_clm.policies import AuditedJudging, Groups, ThresholdPolicy
from sklearn_clm.scoring import (
    Citation,
    ClaimSupport,
    CombinedScore,
    GroundedIn,
    VerbalisedConfidence,
    _components,
)
from tests.claims import ClaimModel, claims_of, is_right, score_of, walk, walked_threshold
from tests.pages import Page

X = [f"p{i}" for i in range(120)]
NEW = [f"q{i}" for i in range(60)]
Y = [""] * len(X)
PARTS = {"splitter": claims_of, "component_score": score_of, "admission": is_right}


@pytest.fixture(scope="module")
def sampler():
    options = {"k_max": 4, "epsilon": 0.5, "quality": "self_consistency", "random_state": 0}
    return ConformalSampler(ClaimModel(), admission=lambda y, text: True, **options).fit(X, Y)


def all_draws(sampler, prompts):
    rows = ClaimModel().sample(prompts, 4, seed=sampler.seed_)
    return [[draw.response for draw in row] for row in rows]


@pytest.mark.filterwarnings("ignore:a single draw errs")
@pytest.mark.parametrize("judging", ["all", "lazy"])
@pytest.mark.parametrize("max_wrong", [0, 1, 3])
def test_the_selection_is_that_of_a_plain_walk(sampler, max_wrong, judging):
    options = PARTS | {"alpha": 0.4, "max_wrong": max_wrong, "judging": judging}
    selector = ComponentSelector(sampler, **options).fit(X, Y)
    critical = int(critical_count(len(X), 0.4, 0.05))
    all_scores = [walk(row) for row in all_draws(sampler, X)]
    highest_out = walked_threshold(all_scores, critical, max_wrong)
    for scores in all_scores:
        for score in scores.values():
            assert (score >= selector.gamma_hat_) == (score > highest_out)
    for one in selector.predict(NEW):
        scores = walk(one.prediction_set.responses)
        assert set(one.components) == {c for c, s in scores.items() if s >= selector.gamma_hat_}
        assert one.scores == pytest.approx([scores[c] for c in one.components])
    words = "all components selected" if not max_wrong else f"at most {max_wrong} of the components"
    assert words in selector.calibration_.claim.sentence()
    if judging == "lazy" and max_wrong < 3:
        assert selector.n_judgements_ < selector.calibration_data_.n_components
        assert "Other levels" not in str(CalibrationReport.from_estimator(selector))


def test_parents_decide_what_is_selected(sampler):
    """Neither calibration nor prediction ignores them."""
    rows = all_draws(sampler, X)
    assert any(walk(row) != walk(row, with_parents=False) for row in rows)
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4).fit(X, Y)
    data = selector.calibration_data_
    found = [data.take([i]).scores for i in range(len(X))]
    wanted = [list(walk(rows[i]).values()) for i in selector.calibration_indices_]
    assert [sorted(row) for row in found] == [pytest.approx(sorted(row)) for row in wanted]


def test_calibration_that_ignores_parents_is_noticed(sampler, monkeypatch):
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4)
    heeding = selector.collect(X, Y)
    monkeypatch.setattr(_components, "least_on_the_way_up", lambda parts, scores: scores)
    ignoring = selector.collect(X, Y)
    gammas = [
        [component_learn_then_test(data, alpha).gamma_hat for alpha in (0.1, 0.2, 0.3, 0.5)]
        for data in (heeding, ignoring)
    ]
    # V is larger where parents are ignored: valid, and too few claims are kept
    assert np.all(np.less_equal(*gammas))
    assert np.any(np.less(*gammas))


def test_no_response_is_split_twice(sampler, tmp_path):
    calls = []

    def counted(prompt, response):
        calls.append((prompt, response))
        return claims_of(prompt, response)

    counted.fingerprint = lambda: "claims"
    options = PARTS | {"splitter": CachedSplitter(counted, tmp_path / "store.sqlite")}
    selector = ComponentSelector(sampler, **options, alpha=0.4).fit(X, Y)
    plain = ComponentSelector(sampler, **PARTS, alpha=0.4).fit(X, Y)
    assert selector.gamma_hat_ == plain.gamma_hat_
    drawn = {(x, text) for x, row in zip(X, all_draws(sampler, X)) for text in row}
    assert sorted(calls) == sorted(drawn)
    calls.clear()
    predicted = selector.predict(NEW)
    assert [one.components for one in predicted] == [one.components for one in plain.predict(NEW)]
    accepted = {(one.prompt, text) for one in predicted for text in one.prediction_set.responses}
    assert sorted(calls) == sorted(accepted)  # what was rejected is not split at all
    calls.clear()
    selector.predict([*NEW, *X])
    assert not set(calls) & accepted
    assert len(calls) == 0  # the draws of calibration are kept, too


def test_what_was_rejected_supports_claims_and_is_not_split():
    calls = []

    def counted(prompt, response):
        calls.append(response)
        return claims_of(prompt, response)

    counted.fingerprint = lambda: "claims"
    options = {"k_max": 4, "epsilon": 0.5, "quality": "self_consistency", "random_state": 0}
    late = ThresholdPolicy(set_score="first_k_reject", size_weight=1, excess_weight=0)
    choosy = ConformalSampler(ClaimModel(), admission=is_right, policy=late, **options).fit(X, Y)
    score = ClaimSupport(lambda response, claim: claim in response)
    parts = PARTS | {"component_score": score, "splitter": counted}
    selector = ComponentSelector(choosy, **parts, alpha=0.8).fit(X, Y)
    calls.clear()
    sets = selector.predict(NEW)
    drawn = [one.prediction_set for one in sets]
    assert set(calls) == {text for one in drawn for text in one.responses}
    assert any(one.n_samples > len(one) for one in drawn)
    for one in sets:
        texts = [draw.response for draw in one.prediction_set.generations]
        for claim in one.claims:
            own = sum(claim.text in text for text in texts)
            assert claim.score <= own  # less where it rests on less


def test_a_score_that_costs_is_asked_for_once_in_fit(sampler):
    asked = []

    def ask(question):
        asked.append(question)
        return "50"

    options = PARTS | {"component_score": VerbalisedConfidence(ask)}
    data = ComponentSelector(sampler, **options, alpha=0.4).collect(X, Y)
    # but for the few on which all parts are tried first
    assert data.n_components <= len(asked) < 1.1 * data.n_components


def says(passage, claim):
    return 0.5 * (claim.split()[2][:-1] in passage)


LEARNT = [f"l{i}" for i in range(80)]


@pytest.fixture(scope="module")
def combined():
    scores = [ClaimSupport(), VerbalisedConfidence(asked_for_score), GroundedIn(says)]
    draws = ClaimModel().sample(LEARNT, 4)
    parts = {"splitter": claims_of, "admission": is_right}
    return CombinedScore(scores).fit(LEARNT, LEARNT, draws, **parts)


def asked_for_score(question):
    statement = question.split("Statement in an answer: ")[1].split("\n")[0]
    return str(round(100 * score_of(None, statement)))


def test_a_classifier_of_scores_sees_none_of_the_prompts_that_calibrate(sampler, combined):
    options = PARTS | {"component_score": combined, "alpha": 0.4}
    apart = ComponentSelector(sampler, **options).fit(X, Y)
    # the same prompts, given with those that trained it, whose references tell nothing
    both = ComponentSelector(sampler, **options).fit([*LEARNT, *X], [*LEARNT, *Y])
    assert both.calibration_indices_.tolist() == [80 + i for i in apart.calibration_indices_]
    assert both.calibration_data_.n_prompts == len(X)
    assert both.gamma_hat_ == apart.gamma_hat_ < 1
    assert both.predict(NEW) == apart.predict(NEW)
    # its scores do not depend on what else is scored, and are those of the plain rule
    critical = int(critical_count(len(X), 0.4, 0.05))
    scores = [apart.calibration_data_.take([i]) for i in range(len(X))]
    worst = [max(row.scores[row.labels == 0], default=-np.inf) for row in scores]
    assert sorted(worst, reverse=True)[critical] < apart.gamma_hat_
    assert apart.predict(NEW[:1])[0].components == apart.predict(NEW)[0].components
    with pytest.raises(ValueError, match="prompts that have not trained component_score"):
        ComponentSelector(sampler, **options).fit(LEARNT, LEARNT)


def test_prompts_that_trained_what_stands_inside_calibrate_nothing(sampler, combined):
    """A frozen score, and one among the scores of another."""
    options = PARTS | {"alpha": 0.4}
    parts = {"splitter": claims_of, "admission": is_right}
    draws = ClaimModel().sample(X[:40], 4)
    outer = CombinedScore([FrozenEstimator(combined), ClaimSupport()])
    outer.fit(X[:40], X[:40], draws, **parts)
    first_unseen = {FrozenEstimator(combined): 80, FrozenEstimator(outer): 120}
    for score, first in first_unseen.items():
        selector = ComponentSelector(sampler, **options | {"component_score": score})
        selector = clone(selector).fit([*LEARNT, *X], [*LEARNT, *Y])
        assert selector.calibration_indices_.tolist() == [*range(first, 200)]


def test_a_classifier_of_scores_is_known_by_what_it_has_learnt(sampler, combined, tmp_path):
    path = tmp_path / "calibration.json"
    options = PARTS | {"component_score": combined, "alpha": 0.4}
    selector = ComponentSelector(sampler, **options).fit(X, Y)
    selector.save_calibration(path)
    loaded = ComponentSelector(sampler, **options).load_calibration(path)
    assert loaded.predict(NEW) == selector.predict(NEW)
    unfitted = clone(combined)
    with pytest.raises(NotFittedError, match="component_score must be fitted on other prompts"):
        ComponentSelector(sampler, **options | {"component_score": unfitted}).fit(X, Y)
    parts = {"splitter": claims_of, "admission": is_right}
    other = unfitted.fit(LEARNT[:60], LEARNT[:60], ClaimModel().sample(LEARNT[:60], 4), **parts)
    with pytest.raises(ValueError, match="another component_score"):
        ComponentSelector(sampler, **options | {"component_score": other}).load_calibration(path)
    always = parts | {"admission": lambda reference, claim: True}
    with pytest.raises(ValueError, match="must admit some components and refuse others"):
        clone(combined).fit(LEARNT, LEARNT, ClaimModel().sample(LEARNT, 4), **always)


def test_a_classifier_of_scores_cites_what_one_of_them_does(combined):
    claims = ["0 of p: 0.9 right", "0 of q: 0.9 right"]
    assert combined.cite("p", claims) == [Citation(0, "p", 0.5), None]
    assert combined.passages_beside("p") == []
    assert CombinedScore(["support"]).cite("p", claims) == [None, None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_a_classifier_of_scores_keeps_the_promise():
    """In worlds of their own, whose risk is measured on many new prompts."""
    n_failed = 0
    parts = {"splitter": claims_of, "admission": is_right}
    for world in range(40):
        prompts = [f"{world} {i}" for i in range(120)]
        draws = ClaimModel().sample(prompts[:40], 3)
        score = CombinedScore([ClaimSupport(), score_of])
        score = score.fit(prompts[:40], prompts[:40], draws, **parts)
        options = {"k_max": 3, "epsilon": 0.5, "quality": "self_consistency", "random_state": 0}
        drawn = ConformalSampler(ClaimModel(), admission=lambda y, text: True, **options)
        selector = ComponentSelector(
            drawn, component_score=score, alpha=0.4, delta=0.1, random_state=0, **parts
        ).fit(prompts, prompts)
        new = [f"{world} new {i}" for i in range(400)]
        sets = selector.predict(new)
        n_failed += component_loss(new, sets, admission=is_right) > 0.4
    assert n_failed <= binom.ppf(0.999, 40, 0.1)


def test_each_group_has_its_threshold(sampler):
    groups = np.arange(len(X)) % 2
    options = PARTS | {"alpha": 0.5, "max_wrong": 1, "groups": Groups()}
    selector = ComponentSelector(sampler, **options).fit(X, Y, groups=groups)
    for group in (0, 1):
        all_scores = [walk(row) for row in all_draws(sampler, X[group::2])]
        highest_out = walked_threshold(all_scores, int(critical_count(60, 0.5, 0.05)), 1)
        for score in {score for scores in all_scores for score in scores.values()}:
            assert (score >= selector.groups_[group]) == (score > highest_out)


@pytest.mark.parametrize("design", ["two-phase", "betting", "people"])
@pytest.mark.parametrize("max_wrong", [0, 1])
def test_an_audit_tolerates_as_many(sampler, design, max_wrong):
    people = AuditedJudging(is_right, n_audits=40, design=design)
    lenient = PARTS | {"admission": lambda y, claim: True, "judging": people}
    options = lenient | {"alpha": 0.6, "max_wrong": max_wrong, "random_state": 0}
    selector = ComponentSelector(sampler, **options).fit(X, Y)
    claim = selector.calibration_.claim
    assert claim.max_wrong == max_wrong
    if design == "two-phase":
        audit = selector.result_.audit
        data = selector.calibration_data_
        gamma = selector.result_.thresholds[0]
        n_missed = 0
        for row in audit.rows:
            chosen = data.components_of(np.array([row]))
            chosen = chosen[data.scores[chosen] >= gamma]
            said = audit.verdicts[np.isin(audit.prompts, chosen)]
            assert len(said) == len(chosen)  # all that is selected is judged
            n_missed += int(np.sum(~said)) > max_wrong
        assert audit.n_missed == n_missed
    if claim.holds:
        loss = component_loss([""] * len(NEW), selector.predict(NEW), admission=is_right)
        assert 0 <= loss <= 1


def test_metrics_tolerate_as_many(sampler):
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4, max_wrong=1).fit(X, Y)
    sets = selector.predict(NEW)
    wrong = np.array([sum(not is_right("", c) for c in one) for one in sets])
    losses = component_loss([""] * len(NEW), sets, average=False)
    assert losses.tolist() == (wrong > 1).tolist()
    assert (wrong == 1).any()
    kept = np.mean([bool(one) for one in map(len, sets)])
    assert component_recall([one.prompt for one in sets], sets, match=lambda y, c: y in c) == kept


def test_files_know_how_many_may_be_wrong(sampler, tmp_path):
    path = tmp_path / "calibration.json"
    options = PARTS | {"alpha": 0.4}
    selector = ComponentSelector(sampler, **options, max_wrong=1).fit(X, Y)
    selector.save_calibration(path)
    loaded = ComponentSelector(sampler, **options, max_wrong=1).load_calibration(path)
    assert loaded.predict(NEW) == selector.predict(NEW)
    with pytest.raises(ValueError, match="another max_wrong: 1 there, 0 here"):
        ComponentSelector(sampler, **options).load_calibration(path)


def test_people_see_the_response_beside_a_claim(sampler, tmp_path):
    judge = HumanJudge(tmp_path / "people.sqlite", question="Right?", judge="Ada")

    def in_other_words(prompt, response):
        return [f"It says {claim.text}" for claim in claims_of(prompt, response)]

    options = PARTS | {"admission": judge, "splitter": in_other_words}
    selector = ComponentSelector(sampler, **options, alpha=0.4, judging="lazy")
    with pytest.raises(VerdictsWanted) as caught:
        selector.fit(X, judge.asked(X))
    pair = caught.value.wanted[0]
    view = pair_view(pair)
    ((response, marked),) = view["context"]  # all of it, and no part is marked
    assert pair.response in [f"It says {text}" for text, _ in json.loads(response)]
    assert not marked
    assert view["prompt"][0]["text"] == pair.asked.prompt


def passages_of(prompt):
    return ["Nothing.", f"<b>It is of {prompt}</b>"]


def test_people_see_the_passages_that_do_not_stand_in_the_prompt(sampler, tmp_path):
    seen = {}
    for context in (passages_of, None):
        judge = HumanJudge(tmp_path / f"{context is None}.sqlite", judge="Ada")
        score = GroundedIn(lambda passage, claim: True, context)
        options = PARTS | {"admission": judge, "component_score": score, "judging": "lazy"}
        with pytest.raises(VerdictsWanted) as caught:
            ComponentSelector(sampler, **options, alpha=0.4).fit(X, judge.asked(X))
        elsewhere = HumanJudge(judge.path).wanted()[0]
        seen[context] = [pair_view(one)["passages"] for one in (caught.value.wanted[0], elsewhere)]
        prompts = [one.asked.prompt for one in (caught.value.wanted[0], elsewhere)]
    expected = [[[(text, False)] for text in passages_of(prompt)] for prompt in prompts]
    assert seen == {passages_of: expected, None: [[], []]}
    # people who audit a model see them, too
    score = GroundedIn(lambda passage, claim: True, passages_of)
    audited = AuditedJudging(judge, n_audits=40)
    options = PARTS | {"component_score": score, "judging": audited, "random_state": 0}
    with pytest.raises(VerdictsWanted) as caught:
        ComponentSelector(sampler, **options, alpha=0.6).fit(X, [f"of {x}" for x in X])
    for pair in caught.value.wanted:
        assert pair.asked.context.passages == tuple(passages_of(pair.asked.prompt))


# --- how claims are shown -------------------------------------------------------------------------


def test_a_selection_tells_of_all_claims(sampler):
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4).fit(X, Y)
    sets = selector.predict(NEW)
    for one in sets:
        scores = walk(one.prediction_set.responses)
        assert {claim.text: claim.score for claim in one.claims} == pytest.approx(scores)
        assert [claim.text for claim in one.claims if claim.kept] == list(one.components)
        assert all(claim.kept == (claim.score >= selector.gamma_hat_) for claim in one.claims)
        for claim, written in zip(one.claims, json.loads(json.dumps(one.to_dict()))["claims"]):
            assert written["span"] == list(claim.span)
            assert (written["text"], written["kept"]) == (claim.text, claim.kept)
            first = one.prediction_set.generations[claim.draws[0]].response
            assert first[slice(*claim.span)] == claim.text
    kept, everything = sets.to_frame(), sets.to_frame(left_out=True)
    assert len(everything) == sum(len(one.claims) for one in sets) > len(kept)
    both = ["prompt_index", "component", "score", "draws", "guaranteed"]
    chosen = everything[everything["kept"]].reset_index(drop=True)
    assert chosen[both].equals(kept)


EVIL = "<script>x</script>"
ANSWER = PredictionSet("Q", ("A b. C d.",), [0.9], [0], 1, 0.9, True, True)
SHOWN = ComponentSet(
    ("A b.", "B says d.", EVIL),
    [0.9, 0.8, 0.7],
    [[(0, (0, 4))], [(0, None)], [(0, None)]],
    ANSWER,
    True,
    citations=((), (Citation(1, f"D {EVIL}", 0.6),), ()),
)


def test_claims_stand_under_the_text_unless_they_are_tinted_in_it():
    page = Page(SHOWN.to_html())
    assert page.marked == ["A b.", "B says d.", EVIL]
    assert "trusted; passage 2: D" in SHOWN.to_html()
    assert EVIL not in SHOWN.to_html()
    text = str(SHOWN)
    assert "**A b.** C d." in text  # and no claim without a place marks the response
    assert f"0.8  B says d.  (draw 1; passage 2: D {EVIL})" in text
    frame = ComponentSets([SHOWN]).to_frame(left_out=True)
    assert frame["span"].tolist() == [(0, 4), None, None]
    assert SHOWN.to_dict()["claims"][1]["citations"] == [
        {"passage": 1, "text": f"D {EVIL}", "score": 0.6}
    ]


def test_a_sentence_is_not_tinted_for_one_of_its_claims():
    claims = ("A is b.", "A is c.", "D.")
    places = [[(0, (0, 13))], [(0, (0, 13))], [(0, (14, 16))]]
    answer = PredictionSet("Q", ("A is b and c. D.",), [0.9], [0], 1, 0.9, True, True)
    whole = ComponentSet(claims, [0.9, 0.9, 0.9], places, answer, True)
    assert Page(whole.to_html()).marked[:2] == ["A is b and c.", "D."]
    left_out = [("A is c.", 0.1, places[1])]
    part = ComponentSet(claims[::2], [0.9, 0.9], places[::2], answer, True, left_out=left_out)
    assert Page(part.to_html()).marked == ["D.", "A is b."]
    assert "A is b and c. **D.**" in str(part)


def test_passages_of_the_score_are_cited(sampler):
    def entails(passage, claim):
        return 0.9 * (passage.endswith(claim.split()[2][:-1])) * score_of(None, claim)

    score = GroundedIn(entails, lambda prompt: ["Nothing.", f"It is of {prompt}"])
    options = PARTS | {"component_score": score, "alpha": 0.5}
    for one in ComponentSelector(sampler, **options).fit(X, Y).predict(NEW):
        for claim in one.claims:
            if claim.kept and claim.score > 0:
                (cited,) = claim.citations
                said = pytest.approx(0.9 * score_of(None, claim.text))
                assert cited == Citation(1, f"It is of {one.prompt}", said)
                assert claim.score <= cited.score  # less where it rests on less


def test_a_rewritten_text_promises_nothing_and_says_so(sampler):
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4).fit(X, Y)
    asked = []

    async def ask(question):
        asked.append(question)
        return f" So it is. {EVIL} "

    one = max(selector.predict(NEW), key=len)
    written = one.rewritten(ask)
    assert all(f"- {component}" in asked[0] for component in one.components)
    assert (written.text, written.claims) == (f"So it is. {EVIL}", one.components)
    sentence = selector.calibration_.claim.sentence()
    for shown in (str(written), written.to_dict()["guarantee"], written._repr_html_()):
        assert "about the claims of which this text was written, not about the text" in shown
        assert sentence.split(",")[0] in shown
    assert EVIL not in written._repr_html_()
    asked.clear()
    nothing = ComponentSet((), [], [], ANSWER, True).rewritten(ask)
    assert (nothing.text, asked) == ("", [])
    assert "(nothing is selected)" in str(nothing)


def test_a_text_is_promised_where_it_is_what_was_judged(sampler):
    selector = ComponentSelector(sampler, **PARTS, alpha=0.4).fit(X, Y)

    def text_of(prompt):
        written = selector.predict([prompt])[0].rewritten(lambda question: question)
        return written.text.partition("Statements:")[2].strip()

    texts = ConformalSampler(
        FunctionGenerator(text_of),
        k_max=1,
        epsilon=0.6,
        quality=lambda prompt, draw: 1.0,
        admission=lambda reference, text: "wrong" not in text,
        random_state=0,
    ).fit(NEW, [""] * len(NEW))
    (one,) = texts.predict(["r0"])[0]
    assert all(f"- {claim}" in one for claim in selector.predict(["r0"])[0])
    assert "the set for a new prompt" in texts.calibration_.claim.sentence()
    n_wrong = sum("wrong" in text_of(NEW[i]) for i in texts.calibration_indices_)
    assert texts.calibration_data_.admissible.mean() == 1 - n_wrong / len(NEW)


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("Who? " * 99 + "Curie.", ["Who? " * 99 + "Curie."]),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "W? " * 99}],
            None,
        ),
        (np.arange(3.0), ["[0, 1, 2]"]),
    ],
)
def test_a_text_is_asked_for_with_the_whole_prompt(prompt, parts):
    asked = []
    answer = PredictionSet(prompt, ("A b.",), [0.9], [0], 1, 0.9, True, True)
    one = ComponentSet(("A b.",), [0.9], [[(0, (0, 4))]], answer, True)
    one.rewritten(lambda question: asked.append(question) or "A is b.")
    for part in parts or [message["content"] for message in prompt]:
        assert part in asked[0]
