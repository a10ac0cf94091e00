"""Tables that are filled on demand, from data that hold everything."""

import numpy as np

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.exit_policy import ExitEntries
from sklearn_clm.calibration.table import Table
from sklearn_clm.generators.draws import text_key


def lazy_table(data: CalibrationData, *, draws=True, known=None, judge=None) -> Table:
    """The same prompts, of which nothing is drawn, or all is; `known` labels, or none.

    Labels are known of draws that are made alone.
    """
    n, k_max = data.quality.shape
    if not draws or known is None:
        known = np.full((n, k_max), -1)
    hidden = CalibrationData(
        data.quality if draws else np.zeros((n, k_max)),
        data.similarity if draws else np.zeros((n, k_max, k_max), dtype=data.similarity.dtype),
        known,
        texts=data.first if draws else np.tile(np.arange(k_max), (n, 1)),
        n_draws=None if draws else np.zeros(n, dtype=int),
    )

    def draw(rows, n_draws):
        for row, last in zip(rows, np.broadcast_to(n_draws, rows.shape)):
            made = slice(table.n_draws[row], last)
            assert made.stop <= k_max
            hidden.quality[row, made] = data.quality[row, made]
            hidden.similarity[row, made] = data.similarity[row, made]
            hidden.texts[row, made] = data.first[row, made]

    def verdicts(rows, texts):
        assert np.all(texts < table.n_draws[rows])
        return data.admissible[rows, texts]

    table = Table(hidden, None if draws else draw, judge or verdicts)
    return table


def data_of(answers, right) -> CalibrationData:
    """Answers that are alike where they are equal, each scored by its share so far."""
    same = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    quality = np.tril(same).sum(axis=2) / np.arange(1, answers.shape[1] + 1)
    return CalibrationData(quality, np.tril(same, -1), right, texts=same.argmax(axis=2))


def exit_scores_of(model, data: CalibrationData, texts=None) -> tuple[np.ndarray, np.ndarray]:
    """tau and m of all texts of an exit model, from all draws; no label is looked at."""
    known = CalibrationData(data.quality, data.similarity, np.ones(data.quality.shape))
    known.texts = data.first if texts is None else texts
    entries = ExitEntries(Table(known), np.arange(data.n_prompts), model)
    return entries.tau, entries.exits


def equal_texts(responses) -> np.ndarray:
    """For each draw the first draw of its prompt with an equal response: int of shape (n, K)."""
    rows = []
    for row in responses:
        seen: dict[object, int] = {}
        rows.append([seen.setdefault(text_key(one), j) for j, one in enumerate(row)])
    return np.array(rows)
