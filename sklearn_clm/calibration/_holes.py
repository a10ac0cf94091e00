"""Holes: what may be said where draws end early.

A table in which prompts have draws of different number was filled lazily, by somebody else. Of
prompt i the first N_i of K draws are known, with scores and labels; the others might have been
made, and are unknown. K is fixed beforehand; nothing is assumed of N_i.

*What is unknown counts against the certificate.* Give each prompt its K draws, made or not: a full
table. Prompts are independent and identically distributed with their rows of it, so that whatever
is certified of the full table is certified with confidence 1 - delta. Let E_m be the prompts that
err at step m of a path there, and B_m those not shown to be right by their known draws.

(1) *Thresholds.* Whether a draw is accepted, and whether sampling stops after it, depend on that
draw and earlier ones. A witness among the N_i known draws, accepted before the stop, is a member of
the set whatever comes later: sets lose nothing. So a prompt outside B_m does not err, and E_m is a
part of B_m. Where an empty set abstains, a prompt without a witness that has not stopped counts as
a set that is not empty, and wrong. With e errors of n,

    P(Bin(n, eps) <= e) <= P(Bin(n + 1, eps) <= e + 1), and P(Bin(n, eps) <= e) rises with e,

so that the p-value is at least that of the full table, whether the prompt counts there or not, and
whether it errs there or not.

(2) *Exit levels.* tau(c) is a largest value over moments k, and those up to N_i are known: it can
only grow. Values are probabilities, and m_K = -inf counts every text at last, so that 0 is a bound
from below, too. So V_i is at least W_i, the largest such bound of a known admissible text, or -inf.
The (c + 1)-th smallest W is at most the (c + 1)-th smallest V, u-hat, and any lower level errs no
more; marginally as well.

The bound is loose where draws ended at a success. A text counts at a moment if its probability then
is above m_k, so that sampling would have stopped there at some level; a success that came while
sampling would go on may lose its place to later texts, and is known to count at last alone. Of 400
prompts of 10 draws, thresholds took 3.2 draws for each of new prompts at epsilon = .15, and the
exit level all 10; at .35 they took 1.8 and 10. A rho that was chosen by these bounds helped for
some tables from epsilon = .25 on, and seldom brought fewer draws than thresholds. Of such data take
thresholds.

(3) *Answers.* At a level each prompt is answered, with one text, or escalated. What is learnt
decides where it is sure after N_i draws or fewer, or hopeless; a vote where draws to come can
change neither the text nor whether it reaches the level. A prompt that is still open counts as
answered, and wrong: by the inequality of (1) the p-value is at least that of the full table, where
it is escalated, or answered rightly or wrongly. Levels of what is learnt come from other prompts.

The levels of a vote begin at a start: the highest level that m_0 of the tested prompts reach
(``vote.py``). Counted with all open prompts it is the same or higher, counted with none the same
or lower. Tests begin at the higher start, and nothing is certified unless all levels down to the
lower one pass. The start of the full table lies between these, and whatever passes here passes
there: so its sequence comes at least as far. Whether enough prompts have a text that repeats, by
which "auto" chooses, is bounded in the same way; where both bounds do not choose the same, it is
refused, as the draws that are there may tell of labels. So are levels of quality: they are what the
tested prompts reach, one by one, with all draws.

In all cases a step that passes here passes in the full table, on the same path: no certificate is
given that the full table would not give. This is an inequality for every table. So it does not
matter why draws end where they do: after a success, after m failures, at random, for want of money,
or because an adversary who knows the rest wants it so. What does matter:

* *K is fixed beforehand.* As soon as one prompt failed to the end, it is the most draws of any
  prompt. Where none did, verdicts have chosen that number, K' < K. For the set of all draws this
  does no harm: if it is certified falsely with K' draws, let k >= K' be the most draws whose set
  errs more often than epsilon. A prompt that is right by K' draws is right by k, so that the set of
  k draws passes in the full table, which has probability delta at most. For smaller sets nothing
  like this is shown: of such a log give arrays with K columns.
* *Known draws are the first ones.* Draws that are picked, or sorted, are no first draws. A gap ends
  what is known.
* *Prompts are all there.* A prompt that is dropped because of its draws is no random one.
* *A verdict belongs to a text.* Of a judge who contradicts himself the strictest verdict on equal
  texts counts; where draws end at a success, nobody has heard those that might contradict it.
* *Other losses and audits want all draws.* A stake depends on the losses before it, and the order
  of bets on all of them, so that a loss that is raised to its bound may end in more capital: there
  is no inequality for every table. Audits speak of witnesses in sets that are known.

*The path comes from other prompts*, and may come from anything. There a hole is filled by the known
draws of its prompt, in turn (:func:`completed`). That shapes the path, not the guarantee, as long
as these draws did not end by verdicts on the prompts that test it. If they did (``stops`` of a
:class:`Provenance` says so), the path is what it is whatever was seen: the set of all draws alone,
or the levels of a vote. Compare the table that had lacked these stops. It is split alike, by
prompts, its frontier begins with the same set, and that passes there if it passes here (with fewer
than K draws as above). So whatever is certified falsely here, the procedure that knows no such
stops certifies falsely there, and that has probability delta at most. Hence it does not matter
either that the log tells only afterwards whether a stop looked at others. What has another
beginning, or is learnt, is refused.

*Shares and means.* Where draws ended on verdicts, the prompts whose stop is known are no random
ones, and neither are the draws that were made. Means of sizes and draws are left out where a
prompt has not stopped, and so is Eq. 7: of the configurations that pass, that of lowest objective
on the optimisation part is chosen, as all of them hold at once. Errors are reported as "at most".
"""

import copy

import numpy as np

from sklearn_clm.calibration.data import CalibrationData


def completed(data: CalibrationData) -> CalibrationData:
    """The data, with holes filled by copies of known draws.

    Draw j is the known draw j modulo their number; a copy is as similar to its original as any two
    draws are. A prompt without a draw gets draws that are alike, and wrong.
    """
    full = copy.copy(data)
    full.n_draws = np.full(data.n_prompts, data.k_max)

    # the known draw that each draw is, or is copied from, (n, K)
    rows = np.arange(data.n_prompts)[:, np.newaxis]
    n_known = np.maximum(data.n_draws, 1)[:, np.newaxis]
    origin = np.arange(data.k_max) % n_known
    # of a prompt without a draw the origin is a draw that was not made, wrong and of quality 0
    known_quality = np.where(data.made, data.quality, 0.0)
    known_labels = np.where(data.made, data.labels, 0)
    full.quality = known_quality[rows, origin]
    full.labels = known_labels[rows, origin]
    full.texts = data.first[rows, origin]

    # similarity is known of a later draw to an earlier one
    origin_of_one = origin[:, :, np.newaxis]
    origin_of_other = origin[:, np.newaxis]
    later = np.maximum(origin_of_one, origin_of_other)
    earlier = np.minimum(origin_of_one, origin_of_other)
    is_to_earlier = np.tri(data.k_max, k=-1, dtype=bool)
    is_known_pair = data.made[:, :, np.newaxis] & is_to_earlier
    largest = data.similarity[is_known_pair].max(initial=1.0)
    similarity = data.similarity[rows[:, :, np.newaxis], later, earlier]
    full.similarity = np.where(later == earlier, largest, similarity)
    return full
