"""Generators of rising price as one stream of draws."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_scalar
from sklearn.utils.metaestimators import available_if

from sklearn_clm.calibration.tiers import Tiers, check_tiers
from sklearn_clm.generators.base import (
    BaseGenerator,
    Generator,
    Prompts,
    answer_queue,
    trained,
    trait,
)
from sklearn_clm.generators.draws import Generation
from sklearn_clm.generators.identity import digest_of, fingerprint, is_trainable
from sklearn_clm.generators.queue import ANY, DrawQueue, DrawRequest, HowMany, RelayQueue


class CascadeGenerator(BaseGenerator):
    """Draw from a cheap generator first, then from dearer ones.

    Of each prompt the first draws come from the first generator, the following from the second, and
    so on: draw j of the stream is draw ``j - offset`` of its tier's generator, so that draws stay
    keyed. Draws of a dear tier are made only where the cheaper ones did not suffice: in
    ``predict``, and with ``judging="lazy"`` in ``fit`` too. Nothing else is special about a
    cascade, and the guarantee is that of one generator.

    Parameters
    ----------
    generators : sequence of Generator
        Different generators, as a rule in order of price. Any will do: a cached one, logs in a
        :class:`PrecomputedGenerator`, one that is trained.
    n_draws : sequence of int
        How many draws of each generator, >= 1. `k_max` of a sampler is at most their sum.
    prices : sequence of float
        Price of a draw of each, > 0. In what unit matters for an exit policy, whose `draw_price`
        is that of a draw of price 1, against a response shown.

    Attributes
    ----------
    generators_ : list of Generator
        The generators, those that are trained fitted, after :meth:`fit`.

    Examples
    --------
    >>> from sklearn_clm.generators import CascadeGenerator, PrecomputedGenerator
    >>> cheap = PrecomputedGenerator(["2+2?"], [["5", "4", "5"]])
    >>> dear = PrecomputedGenerator(["2+2?"], [["4", "4"]])
    >>> cascade = CascadeGenerator([cheap, dear], n_draws=(3, 2), prices=(1, 25))
    >>> [draw.response for draw in cascade.sample(["2+2?"], 4)[0]]
    ['5', '4', '5', '4']
    >>> cascade.tiers.price_of(4)  # of these four draws
    array(28.)
    """

    def __init__(
        self, generators: Sequence[Generator], *, n_draws: Sequence[int], prices: Sequence[float]
    ) -> None:
        self.generators = generators
        self.n_draws = n_draws
        self.prices = prices

    @property
    def tiers(self) -> Tiers:  # type: ignore[override]
        """Number and price of the draws of each generator."""
        generators = self.generators
        if not isinstance(generators, (list, tuple)) or not generators:
            raise TypeError(
                f"generators must be a list or tuple of generators, got {generators!r:.80} instead."
            )
        if not np.shape(self.n_draws) == np.shape(self.prices) == (len(generators),):
            raise ValueError(
                "n_draws and prices must have one entry for each generator, got "
                f"{self.n_draws!r:.40} and {self.prices!r:.40} for {len(generators)} instead."
            )
        for draws, price in zip(self.n_draws, self.prices):
            check_scalar(draws, "n_draws", Integral, min_val=1)
            if not (isinstance(price, Real) and 0 < price < math.inf):
                raise ValueError(f"prices must be numbers > 0, got {price!r:.40} instead.")
        return Tiers(tuple(map(int, self.n_draws)), tuple(map(float, self.prices)))

    @property
    def gives_logprobs(self) -> bool:  # type: ignore[override]
        """Whether all generators give log-probabilities."""
        return all(trait(generator, "gives_logprobs") for generator in self._inner())

    @property
    def gives_labels(self) -> bool:  # type: ignore[override]
        """Whether all generators give class labels."""
        return all(trait(generator, "gives_labels") for generator in self._inner())

    @available_if(lambda self: any(map(is_trainable, self.generators)))
    def fit(self, prompts: Prompts, references: Sequence[object]) -> Self:
        """Fit clones of the generators that are trained."""
        self.generators_ = [
            trained(clone(generator, safe=False), prompts, references)
            if is_trainable(generator)
            else generator
            for generator in self.generators
        ]
        return self

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, one tier after the other."""
        # a draw beyond the last tier has no generator: refused before the first is paid for
        check_tiers(self.tiers, queue.n_draws)
        *starts, _ = self.tiers.starts  # the last is K, where no tier begins
        waiting: list[deque[DrawRequest]] = [deque() for _ in starts]
        tier: int | None = 0
        while tier is not None:
            answer_queue(self._inner()[tier], _TierQueue(queue, waiting, starts, tier))
            # cheap draws first: with them dear ones may be superfluous
            tier = next((t for t, requests in enumerate(waiting) if requests), None)

    def fingerprint(self) -> str:
        """Digest of the generators and their numbers of draws."""
        # prices are no part: the draws are the same whatever they cost
        content = [[fingerprint(generator), n] for generator, n in zip(self._inner(), self.n_draws)]
        return digest_of(type(self), {"generators": content})

    def _inner(self) -> Sequence[Generator]:
        return getattr(self, "generators_", self.generators)


class _TierQueue(RelayQueue):
    """The part of a queue that is of one tier."""

    def __init__(
        self, outer: DrawQueue, waiting: list[deque[DrawRequest]], starts: list[int], tier: int
    ) -> None:
        super().__init__(outer)
        self._waiting = waiting[tier]
        self._waiting_of_tiers = waiting
        self._start = starts[tier]
        self._starts = starts

    def take_ahead(
        self, max_draws: int, least_chance: float = 0.0, *, n_at_once: HowMany | None = None
    ) -> list[DrawRequest]:
        """No draws: the next ones may be dear."""
        return []

    def put(self, prompt: int, draw: int, generation: Generation) -> None:
        """Hand in a draw that was taken."""
        self._outer.put(prompt, draw + self._start, generation)
        self.n_under_way -= 1
        self.n_put += 1

    def give_up(self, prompt: int, draw: int) -> bool:
        """Take back a draw of a closed prompt."""
        # the outer queue counts draws of the stream, this one those of its tier
        is_given_up = self._outer.give_up(prompt, draw + self._start)
        self.n_under_way -= is_given_up
        return is_given_up

    def is_open(self, prompt: int) -> bool:
        """Whether more draws of a prompt may be asked for."""
        return self._outer.is_open(prompt)

    def is_wanted(self, prompt: int, draw: int) -> bool:
        """Whether a draw is wanted as things stand."""
        return self._outer.is_wanted(prompt, draw + self._start)

    def is_abandoned(self, prompt: int, draw: int) -> bool:
        """Whether whoever waited for a draw under way has left."""
        return self._outer.is_abandoned(prompt, draw + self._start)

    def _receive(self, requests: list[DrawRequest]) -> None:
        """Let each tier wait for its part of the draws."""
        # of each tier: its first draw in the stream, and that of the next tier
        bounds = list(pairwise([*self._starts, ANY]))
        for prompt, start, stop in requests:
            for waiting, (first, last) in zip(self._waiting_of_tiers, bounds):
                if max(start, first) < min(stop, last):
                    # draws of a tier count from 0
                    begin = max(start, first) - first
                    end = min(stop, last) - first
                    waiting.append(DrawRequest(prompt, begin, end))
