"""Policies: how sampling stops, and how much is judged.

The defaults of :class:`sklearn_clm.ConformalSampler` are those of the paper: three thresholds,
every draw judged, a guarantee with confidence 1 - delta. Each can be exchanged for an object with
parameters of its own, which searches reach as ``policy__look_ahead``.

| parameter | choices | what it changes |
|---|---|---|
| `policy` | None, :class:`ThresholdPolicy`, :class:`ExitPolicy`, :class:`AnswerPolicy` | the set |
| `judging` | "all", "lazy", :class:`LazyJudging` | how many draws must be judged in ``fit`` |
| | :class:`AuditedJudging` | whose standard the guarantee is about |
| `groups` | None, :class:`Groups` | one guarantee within each group of prompts |
| `shift` | None, :class:`CovariateShift` | new prompts are distributed otherwise |
| `losses` | None, :class:`Losses` | other losses of a set, each at its own level |

Sums again, as in the first chapter, with a model that is wrong at times:

>>> import numpy as np
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.generators import PrecomputedGenerator
>>> from sklearn_clm.policies import ExitPolicy, LazyJudging
>>> rng = np.random.default_rng(0)
>>> pairs = [(a, b) for a in range(10, 35) for b in range(10, 35)]
>>> prompts = [f"{a} + {b} =" for a, b in rng.permutation(pairs)]
>>> references = [str(sum(map(int, prompt[:-2].split(" + ")))) for prompt in prompts]
>>> def answer(right):  # small last digits are hard
...     wrong = rng.random() < (0.6 if int(right) % 10 < 4 else 0.3)
...     return str(int(right) + rng.integers(1, 9) * wrong)
>>> samples = [[answer(right) for _ in range(8)] for right in references]
>>> generator = PrecomputedGenerator(prompts, samples)
>>> parts = {"quality": "self_consistency", "similarity": "exact_match", "random_state": 0}
>>> def fitted(**choices):
...     sampler = ConformalSampler(generator, k_max=8, epsilon=0.1, **parts, **choices)
...     return sampler.fit(prompts[:450], references[:450])
>>> def draws_per_prompt(sampler):
...     return np.mean([one.n_samples for one in sampler.predict(prompts[450:600])])
>>> everything = fitted()
>>> everything.n_draws_, everything.n_judgements_ < 2000  # equal responses are judged once
(3600, True)

## Judging less

A test only asks whether at most c prompts err, and one admissible member of a set, a *witness*,
settles a prompt. So draws are judged until each test is decided, and no further: every decision is
that of the full table of labels, whatever the order of judging. On the optimisation part labels
only shape the path of the tests: a few are given, the rest is estimated. With
``optimization_judgements=None`` all are given, and the same configurations are certified:

>>> lazy = fitted(judging=LazyJudging(optimization_judgements=None))
>>> np.array_equal(lazy.valid_lambdas_, everything.valid_lambdas_), lazy.n_judgements_ < 1500
(True, True)

What is not known then: p-values, beyond being at most delta; the achievable band; and the excess of
Eq. 7, so that certified thresholds are compared by size and by draws alone. Give
``ThresholdPolicy(draw_weight=...)`` a value where draws cost. Of people
(:class:`sklearn_clm.caching.HumanJudge`) what is missing is asked for in batches, none in vain.
Then something cheap may take the optimisation part, such as
``LazyJudging(optimization_admission="rouge_l")``: labels there may be wrong, and the guarantee
holds.

Verdicts are always saved; draws mostly with an exit policy (below), which needs a calibration
prompt's draws up to its level, as many as `predict` makes. Thresholds need those of all certified
configurations, which are all K; with ``select="last"`` those of the one that is chosen, often all
but for a few. ``collect`` always makes all draws, for many calibrations of the same data.

## People's standard, at the price of a model

A model judges all draws, and people only some of the responses that it admits, drawn at random:
:class:`AuditedJudging`. The guarantee is then about what people admit, however wrong the model is;
one that is rarely lenient saves most of their verdicts. A lax rule stands for it here:

>>> from sklearn_clm.policies import AuditedJudging
>>> def lax(reference, response):  # one in a hundred wrong answers passes
...     return response == reference or (int(reference) + int(response)) % 100 == 7
>>> def people(reference, response):
...     return response == reference
>>> audited = fitted(admission=lax, judging=AuditedJudging(people, n_audits=150))
>>> "by people's standard" in audited.calibration_.claim.sentence()
True

With ``design="betting"`` people stop as soon as their verdicts certify it:

>>> judging = AuditedJudging(people, n_audits=150, design="betting")
>>> betted = fitted(admission=lax, judging=judging)
>>> betted.calibration_.claim.null is None, len(betted.result_.audit.rows) < 60
(True, True)

With a :class:`sklearn_clm.caching.HumanJudge` as `people` verdicts are given on a page or by file.

## Stopping when sure, and when hopeless

:class:`ExitPolicy` learns, on the optimisation part, the probability that each text seen so far is
admissible and none ranked above it is, and the chance that a first admissible one arrives in the
next few draws. One level then decides both what is in the set and when to stop. A prompt whose
draws agree ends early; so does one that will not be answered anyway. Few prompts teach it: by
default a fifth of 300 or more, where a third searches thresholds.

>>> early = fitted(policy=ExitPolicy())
>>> bool(draws_per_prompt(early) < 0.9 * draws_per_prompt(everything))
True
>>> sets = early.predict(prompts[450:600])
>>> hits = [right in one for right, one in zip(references[450:600], sets)]
>>> bool(np.mean(hits) >= 0.9)
True

The guarantee is that of thresholds, and needs nothing of what was learnt. The sets are nested in
the level, so one number is calibrated, and nothing is corrected for. The proof stands in
``sklearn_clm/calibration/exit_policy.py``.

Near copies count as one text, where labels of the optimisation part show that texts so alike agree.
Where texts repeat, a policy can also learn from prompts without references, each one's last draw in
place of its reference; then all prompts with references calibrate:

>>> unlabeled = early.collect(prompts[450:], None)
>>> taught = ExitPolicy().fit(unlabeled, epsilon=0.1)
>>> fitted(policy=taught).calibration_.rule.outcome.n_calibration
450
>>> both = fitted(policy=ExitPolicy(), judging="lazy")  # both savings together
>>> both.n_judgements_ < 1200, both.n_draws_ < 450 * 8
(True, True)

## Answering when sure, and handing over

:class:`AnswerPolicy` gives one answer, or none: the prompt is escalated, to a dearer model or to a
person. With confidence 1 - delta at most a share `alpha` of the *answers* is wrong; nothing is said
of the other prompts, and `epsilon` plays no part. With ``score="vote"`` the draws vote, which needs
no learning, so that all prompts calibrate; levels of votes are tested in one order, from the most
votes that enough prompts have to fewer: the largest level that passes would be wrong too often,
since more selective answers need not be better. Where answers with more votes are wrong more often,
the confidence of a vote is not proved, but exact sums over many cases keep it
(``sklearn_clm/calibration/vote.py``). Draws end when no further one can change the outcome.

>>> from sklearn_clm.policies import AnswerPolicy
>>> sure = fitted(policy=AnswerPolicy(alpha=0.1, score="vote"))
>>> sets = sure.predict(prompts[450:600])
>>> bool(0.3 < sets.answered.mean() < 1), set(sets.escalated.sizes.tolist())
(True, {0})
>>> from sklearn_clm.metrics import set_loss
>>> answered = np.flatnonzero(sets.answered)
>>> rights = [references[450 + i] for i in answered]
>>> bool(set_loss(rights, sets[answered]) <= 0.1)  # of the answers, not of all prompts
True

>>> sure.calibration_.rule.kind, bool(sets.n_samples.mean() < 8)
('plain level', True)

By default of 250 prompts or more a classifier is learnt, too, on the optimisation part, and tested
on the others: with three quarters of delta, and the vote with the rest, so that both claims hold at
once, and what answers more is used. It takes all draws. Fewer prompts test the vote alone; where
texts do not repeat what is learnt has all of delta. ``score="learnt"`` asks for it alone, and with
a `draw_price` it saves draws: less doubt is tolerated after few, so that a level of 0.8 wants an
answer to be right with probability 0.8 after 20 draws of 20, 0.9 after ten, and 0.98 after two.
Here, too, prompts without references can teach, where texts repeat, and all others calibrate. How
often draws agree then stands for how often they are right; where that is far off, little or nothing
is certified, and a few labels are better:

>>> taught = AnswerPolicy(alpha=0.15, score="learnt").fit(unlabeled)
>>> fitted(policy=taught).calibration_.rule.outcome.n_calibration
450

## Answer, escalate, cascade

What is escalated goes to a function, to a file that people fill in, or to a judge's page
(:func:`sklearn_clm.judging.hand_over`), and comes back in one frame; nothing is promised of it. A
dearer *model* can do better: with a :class:`sklearn_clm.generators.CascadeGenerator` the draws of
both are one stream, and one level and one promise govern all of it. An exit policy then learns, for
each generator, the chance that its next draw brings the first admissible text, and weighs it
against the price of all draws up to that one. Let the model above cost 1 a draw, and a better one
25:

>>> from sklearn_clm.generators import CascadeGenerator
>>> def better(right):
...     return str(int(right) + rng.integers(1, 9) * (rng.random() < 0.05))
>>> of_better = [[better(right) for _ in range(4)] for right in references]
>>> dear = PrecomputedGenerator(prompts, of_better)
>>> cascade = CascadeGenerator([generator, dear], n_draws=(8, 4), prices=(1, 25))
>>> cheap_first = ConformalSampler(cascade, k_max=12, epsilon=0.1, policy=ExitPolicy(), **parts)
>>> cheap_first = cheap_first.fit(prompts[:450], references[:450])
>>> costs = cascade.tiers.price_of(cheap_first.predict(prompts[450:600]).n_samples)
>>> bool(costs.mean() < 25)  # the first draw of the dear model
True

The report of an exit or answer policy says what each generator costs, and
:class:`sklearn_clm.inspection.TradeOffDisplay` compares it with each alone at the same promise,
nulls included. On simulated models whose first draws are right for 38 and 71 % of the prompts, 300
prompts, prices 1 : 25 and 10 and 4 draws, a prompt costs 40 at epsilon = 0.15 and 21 at 0.2,
against 76 and 53 with the dear model alone, for sets of 3.3 responses in place of 2.4 and 1.4; the
cheap one alone certifies nothing in nearly all calibrations. With 1,000 questions of TriviaQA,
which people judged, FiD and GPT-3.5 at 1 and GPT-4 at 25, one draw each, and ``draw_price=0.1``, a
question costs 5 at epsilon = 0.14, 8 at 0.12 and 21 at 0.1. GPT-4 alone costs 25; it certifies
nothing at 0.1, nor at 0.12 in four of 16 splits, and the other two alone certify 0.12 in one of
them and 0.14 in nine.
It does not pay

- where prices are near each other: at 1 : 2 the same two cost 14 in place of 4, since all draws of
  the cheap one are made before the first dear one. Give it few in `n_draws` then, or none;
- where sets must be small: texts of both models stand in a set. A lower `draw_price` makes them
  smaller and dearer;
- for promises about answers (:class:`AnswerPolicy`): much of the price goes into prompts
  that are not answered, and have paid for draws of all generators;
- where few draws of the optimisation part are judged, so that nothing is learnt of who needs the
  dear model: give ``LazyJudging(optimization_judgements=None)``.

## With confidence, or on average

``ExitPolicy(guarantee="pac")``, the default: in at most a share delta of calibrations is the risk
of new prompts above epsilon. ``guarantee="marginal"``: the risk, averaged over calibrations, is at
most epsilon, as in conformal prediction; the calibration that you have may well be above it. Sets
are smaller. The average counts calibrations that certify nothing as right: where epsilon is hardly
above the share of prompts that no draw answers, many do, and those that hold err more often (0.214
on average, at epsilon 0.2 with 60 prompts and a share of 0.154: a fifth certify nothing). It exists
for an exit policy alone, since a path of thresholds is not nested.

>>> average = fitted(policy=ExitPolicy(guarantee="marginal"))
>>> average.calibration_.rule.level >= early.calibration_.rule.level
True

## Within groups

A guarantee for all prompts together lets easy groups pay for hard ones. :class:`Groups` searches
one path for all and tests it within each group; a set then holds an admissible answer with
probability 1 - epsilon *in its group*.

>>> from sklearn_clm.policies import Groups, ThresholdPolicy
>>> def hard(prompt):
...     return sum(map(int, prompt[:-2].split(" + "))) % 10 < 4
>>> grouped = fitted(groups=Groups(by=hard), policy=ThresholdPolicy(draw_weight=0.1))
>>> {name: rule.certified for name, rule in sorted(grouped.groups_.items())}
{False: True, True: True}
>>> sets = grouped.predict(prompts[450:600])
>>> easy, hard = ([one.n_samples for one in sets if one.group == g] for g in (False, True))
>>> bool(np.mean(easy) < np.mean(hard))
True

A group that is not known from the prompt is given instead: ``fit(X, y, groups=...)`` and
``predict(X, groups=...)``, which pipelines and searches pass on once it was asked for by
``set_fit_request(groups=True)`` and ``set_predict_request(groups=True)``.

## Under a shift of the prompts

Where new prompts will be of other kinds than those that calibrate, a weight says how much more
frequent each is. A prompt is kept with probability weight / bound before anything is drawn for it,
and those kept are tested as usual:

>>> from sklearn_clm.policies import CovariateShift
>>> def weight(prompt):  # hard sums will be twice as frequent
...     return 2.0 if sum(map(int, prompt[:-2].split(" + "))) % 10 < 4 else 1.0
>>> shifted = fitted(shift=CovariateShift(weight, weight_bound=2.0))
>>> shifted.shift_.n_offered, 250 < shifted.shift_.n_kept < 400
(450, True)

A weight can be learnt as well, from prompts of both kinds that take no part in calibration: the
odds of a classifier that tells new ones from old. The guarantee is then approximate, and with
``estimated=True`` every set says so:

>>> from sklearn.linear_model import LogisticRegression
>>> old = prompts[450:]
>>> new = [prompt for prompt in old for _ in range(int(weight(prompt)))]
>>> def features(prompts):
...     return [[sum(map(int, prompt[:-2].split(" + "))) % 10] for prompt in prompts]
>>> is_new = LogisticRegression().fit(features(old + new), [0] * len(old) + [1] * len(new))
>>> def odds(prompt):
...     no, yes = is_new.predict_proba(features([prompt]))[0]
...     return min(yes / no, 2.0)
>>> estimated = fitted(shift=CovariateShift(odds, weight_bound=2.0, estimated=True))
>>> estimated.predict(prompts[450:451])[0].claim.approximate
True

## Other losses

The share of wrong members, a price, a toxicity: :class:`Losses` keeps the mean of each at most at
its level, together with the risk of holding no admissible response. A configuration is certified
where the largest of the p-values is at most delta; nothing is corrected for.

>>> from sklearn_clm.policies import Losses
>>> def wrong(prompt, reference, one):
...     return sum(response != reference for response in one) / max(len(one), 1)
>>> kept = fitted(losses=Losses({"wrong": wrong}, {"wrong": 0.7}))
>>> kept.calibration_.outcome.means["wrong"] <= 0.7
True

Where a miss matters more for some prompts than for others, ``ThresholdPolicy(cost=...)`` says how
much, in [0, 1], and `epsilon` bounds the expected cost. Each calibration prompt is at stake with
the probability of its cost, so that the test stays the exact binomial.

>>> from sklearn_clm.policies import ThresholdPolicy
>>> by_cost = fitted(policy=ThresholdPolicy(cost=lambda prompt: 0.5))
>>> by_cost.calibration_.claim.about
'cost'
"""

import sklearn_clm.caching  # noqa: F401 - whole, before parts of it
from sklearn_clm.policies._answer import AnswerPolicy
from sklearn_clm.policies._audited import AuditedJudging
from sklearn_clm.policies._exit import ExitPolicy
from sklearn_clm.policies._losses import Losses
from sklearn_clm.policies._thresholds import ThresholdPolicy
from sklearn_clm.policies.groups import Groups
from sklearn_clm.policies.judging import LazyJudging
from sklearn_clm.policies.shift import CovariateShift

__all__ = [
    "AnswerPolicy",
    "AuditedJudging",
    "CovariateShift",
    "ExitPolicy",
    "Groups",
    "LazyJudging",
    "Losses",
    "ThresholdPolicy",
]
