"""A guarantee within each language family, on the questions of open_domain_qa.py.

    python examples/language_families.py

Names of territories are easier to guess in some languages than in others. A guarantee for all
questions together lets the easy families pay for the hard ones; `Groups` tests one path of
thresholds within each family. Half of the questions calibrate, the other half tests; the draws are
those of open_domain_qa.py, and are made once.
"""

import argparse
import re
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import open_domain_qa

FAMILIES = {
    "Romance": "an ast ca es fr fur gl ht it la lij oc pt rm ro sc scn",
    "Germanic": "af da de fo frr fy gsw lb nb nds nl sv wae",
    "Balto-Slavic": "bs cs dsb hr hsb lt lv pl sk sl szl",
    "Uralic": "et fi hu se smn",
}


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Draw, calibrate for all questions and within families, print and show both."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.calibration import clopper_pearson
    from sklearn_clm.metrics import set_loss
    from sklearn_clm.policies import Groups

    args = parse(argv)
    options = ["--questions", args.questions, "--k-max", args.k_max, "--output", args.output]
    task = open_domain_qa.parse([str(option) for option in options])
    header, prompts, references = open_domain_qa.load_data(task)
    n = len(prompts) // 2
    sampler = open_domain_qa.build_sampler(task, header)
    sampler.set_params(verbose=0, epsilon=args.epsilon)
    sampler.set_params(groups=Groups(family_of, guarantee=args.guarantee))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(prompts[:n], references[:n])
    for text in dict.fromkeys(str(one.message) for one in caught):
        print(text)

    families = np.array([family_of(prompt) for prompt in prompts[n:]])
    rules = {"one rule for all": None, "a rule for each": sampler.calibration_.groups}
    print(f"| family | {' | '.join(f'{name}: loss | size' for name in rules)} | questions |")
    print("|---|" + "---|" * (2 * len(rules) + 1))
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    sets = {}
    for name, groups in rules.items():
        sampler.set_params(groups=groups).calibrate(sampler.calibration_data_)
        sets[name] = sampler.predict(prompts[n:])
    for family in sampler.groups_:
        rows = np.flatnonzero(families == family)
        judged = [references[n + i] for i in rows]
        cells = []
        for name in rules:
            own = sets[name][rows]
            loss = set_loss(judged, own, admission="exact_match")
            low, high = clopper_pearson(round(loss * len(rows)), len(rows))
            found.setdefault(family, {})[name] = loss, low, high, own.sizes.mean()
            cells.append(f"{loss:.3f} ({low:.3f} to {high:.3f}) | {own.sizes.mean():.2f}")
        print(f"| {family} | {' | '.join(cells)} | {len(rows)} |")
    draw(found, args.epsilon).savefig(task.output / "language_families.svg", bbox_inches="tight")
    return found


def draw(found: dict, epsilon: float):
    """Losses by family, under both rules."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.6, 1.2 + 0.45 * len(found)), layout="constrained")
    place = np.arange(len(found))[::-1]
    for name, offset, style in (("one rule for all", 0.12, "s"), ("a rule for each", -0.12, "o")):
        loss, low, high = np.array([row[name][:3] for row in found.values()]).T
        axes.errorbar(loss, place + offset, xerr=[loss - low, high - loss], fmt=style, label=name)
    axes.axvline(epsilon, color="0.4", linestyle="--", label="epsilon")
    axes.set_yticks(place, list(found))
    axes.set_xlabel("share of sets without an admissible response, of questions held out")
    axes.legend(fontsize="small", frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


# %% The family of a question, known from its text alone
def family_of(prompt: str) -> str:
    """Family of the language that a question asks for."""
    language = re.search(r" called in (.*)\? A:$", prompt)
    return _families().get(language[1] if language else "", "others")


@cache
def _families() -> dict[str, str]:
    from babel import Locale

    english = Locale("en").languages
    return {english[code]: name for name, codes in FAMILIES.items() for code in codes.split()}


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=0.5, help="tolerated risk in a family")
    parser.add_argument("--guarantee", choices=["each", "all"], default="each")
    parser.add_argument("--questions", type=int, default=2400, help="how many to use at most")
    parser.add_argument("--k-max", type=int, default=20, help="answers for a question")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
