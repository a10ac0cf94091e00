"""What people are asked, and what they say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sklearn_clm.generators.records import key_digest
from sklearn_clm.scoring.protocols import Prompt, Reference, Response


class Context(NamedTuple):
    """A whole response, and where the judged component stands.

    Of a claim that stands nowhere in it, start and stop are 0. `passages` are those that do not
    stand in the prompt, by which people judge a claim, too.

    Examples
    --------
    >>> from sklearn_clm.caching import Context
    >>> context = Context("It is warm. It may rain.", 12, 24)
    >>> context.response[context.start : context.stop]
    'It may rain.'
    """

    response: str
    start: int
    stop: int
    passages: tuple[str, ...] = ()


@dataclass(frozen=True)
class JudgedPrompt:
    """What a person sees besides the response.

    Parameters
    ----------
    prompt : object, default=None
        The prompt; None where only references are known.
    references : tuple, default=()
        Good responses, where there are some.
    context : Context, default=None
        Where a component is judged: the response around it, and passages. They are shown, but a
        verdict is one on the component whatever response holds it.
    """

    prompt: Prompt = None
    references: tuple[Reference, ...] = ()
    context: Context | None = field(default=None, compare=False)


def as_judged(reference: Reference) -> JudgedPrompt:
    """A reference as people are shown it."""
    return reference if isinstance(reference, JudgedPrompt) else JudgedPrompt(None, (reference,))


class WantedVerdict(NamedTuple):
    """A response that a person should judge.

    Examples
    --------
    >>> from sklearn_clm.caching import JudgedPrompt, WantedVerdict
    >>> WantedVerdict(JudgedPrompt("2+2?", references=("4",)), "four").response
    'four'
    """

    asked: JudgedPrompt
    response: Response

    @property
    def id(self) -> str:
        """Digest of prompt, references and response, in hexadecimal."""
        return key_digest([self.asked.prompt, list(self.asked.references), self.response]).hex()


class Verdict(NamedTuple):
    """What a person said about a response, and when.

    `verdict` is None where the person took an earlier verdict back.
    """

    id: str
    verdict: bool | None
    judge: str
    time: str
    note: str


class VerdictsWanted(RuntimeError):
    """Raised where calibration cannot go on before people have judged.

    Nothing is lost: once the verdicts are given, the same call goes on from there.

    Parameters
    ----------
    wanted : sequence of WantedVerdict
        What is wanted next.
    n_at_most : int, default=None
        How many more may be wanted in all, these included; None where unknown.
    later : sequence of WantedVerdict, default=()
        What may be wanted after these, as far as it is known, first draws before later ones. To
        judge in fewer rounds, ask for some of it in advance:
        ``judge.export(path, [*error.wanted, *error.later[:50]])``. What is found is the same.
    """

    def __init__(
        self,
        wanted: Sequence[WantedVerdict],
        n_at_most: int | None = None,
        later: Sequence[WantedVerdict] = (),
    ) -> None:
        self.wanted = tuple(wanted)
        self.later = tuple(later)
        self.n_at_most = n_at_most
        text = f"{len(self.wanted)} verdict{'' if len(self.wanted) == 1 else 's'} wanted next"
        super().__init__(text if n_at_most is None else f"{text}, at most {n_at_most} in all")
        self.add_note(
            "Let people judge: by file, with judge.export(path, error.wanted) and "
            "judge.import_(path); or on a page, with sklearn_clm.judging.serve(judge), or "
            "sklearn-clm judge STORE. Then make the same call again."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.wanted, self.n_at_most, self.later)
