"""A classifier of sentences, trained on what a model writes for prompts of its own."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["train_sentence_classifier"]


def train_sentence_classifier(
    generator: Any,
    prompts: Sequence[Any],
    references: Sequence[Any],
    features: Callable[[Any, str], Sequence[float]],
    *,
    n_samples: int,
    seed: int,
) -> Any:
    """Probability that a sentence is right, learned from responses drawn for these prompts.

    Parameters
    ----------
    generator : generator
        Draws the responses.
    prompts, references : sequences of length n
        Prompts that serve nothing else; a sentence is right if its ROUGE-L with a sentence of the
        reference, or of any of a list of references, is at least 0.4.
    features : callable (prompt, sentence) -> sequence of float
        What the classifier sees.
    n_samples, seed : int
        How many responses to draw for each prompt, and the seed of the draws.

    Returns
    -------
    ClassifierScore
        A component score.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    from sklearn_clm.scoring import ClassifierScore, component_match, get_splitter

    splitter = get_splitter("sentence")
    admission = component_match("rouge_l", splitter)
    rows, right = [], []
    draws = generator.sample(prompts, n_samples, seed=seed)
    for prompt, reference, row in zip(prompts, references, draws):
        aliases = reference if isinstance(reference, list) else [reference]
        sentences = {
            draw.response[start:stop] for draw in row for start, stop in splitter(draw.response)
        }
        for sentence in sorted(sentences):
            rows.append(features(prompt, sentence))
            right.append(any(admission(alias, sentence) for alias in aliases))
    if len(set(right)) < 2:
        raise SystemExit(
            f"all {len(right)} sentences drawn for {len(prompts)} prompts are "
            f"{'right' if any(right) else 'wrong'}: there is nothing that a classifier could learn"
        )
    classifier = HistGradientBoostingClassifier(max_iter=100, random_state=0).fit(rows, right)
    return ClassifierScore(classifier, features=features)
