"""Both promises of the package, on a small model that lies beside this script, in a minute.

    python examples/quickstart.py

A ViT + GPT-2 model reads strips of four handwritten digits, some of them torn, and writes a report
with a sentence for each digit. Its first report is right for three strips out of four. Here it is
asked for more: a set of reports of which one is right, for 90 % of new strips; and sentences that
can be trusted, all of them, for 90 % of new strips.
"""

# %% Images, what people wrote about them, a model, and who says what is right
from pathlib import Path

import torch
from checkpoints.digit_reports import strips
from transformers.utils import logging

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.generators import TransformersGenerator
from sklearn_clm.policies import ExitPolicy

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "checkpoints" / "digit_reports"  # or the name of a model of yours
images, digits = strips.draw_strips(400, part="unseen", random_state=0, torn=0.1)
reports = [strips.write_report(shown, i) for i, shown in enumerate(digits)]

# %% The two estimators: everything that the promises depend on stands here
sampler = ConformalSampler(
    TransformersGenerator(FOLDER, max_new_tokens=47, batch_size=512),
    k_max=20,  # reports for a strip, at most
    epsilon=0.1,  # at most one set in ten may hold no right report ...
    delta=0.05,  # ... with confidence 95 %
    admission=strips.same_reading,  # right: all four digits are
    similarity=strips.same_reading,  # alike: the same digits, however worded
    policy=ExitPolicy(same_text=0.5),  # stop when sure, and when hopeless
    random_state=0,
)
selector = ComponentSelector(
    sampler, alpha=0.1, delta=0.05, admission=strips.states_the_right_digit, random_state=0
)

# %% Calibration: 20 reports are drawn for each of 300 strips, and judged
logging.disable_progress_bar()
logging.set_verbosity_error()
torch.set_num_threads(1)  # those of a model as small as this mostly wait for each other
print("Calibrating on 300 strips, 20 reports for each (half a minute) ...", flush=True)
sampler.fit(images[:300], reports[:300])
selector.fit(images[:300], reports[:300])  # uses the same draws

# %% Prediction: 100 new strips; for each, as many reports are drawn as it takes
print("Reading 100 new strips ...", flush=True)
sets = sampler.predict(images[300:])
trusted = selector.predict(sets)
print("\nTwo of them; trusted sentences between ** and **:")
for shown, one in zip(digits[301:303], trusted[1:3]):
    print("\nThe digits are", *shown, "-", one)

# %% What was promised, what came of it, and what it cost
from sklearn_clm.metrics import component_loss, set_coverage  # noqa: E402

written = reports[300:]
coverage, no_wrong_sentence = set_coverage(written, sets), 1 - component_loss(written, trusted)
summary = f"""
                              promised   on 100 new strips
a right report in the set          {1 - sampler.epsilon:.0%}   {coverage:.0%}
all trusted sentences right        {1 - selector.alpha:.0%}   {no_wrong_sentence:.0%}

{sets.sizes.mean():.1f} reports in a set, with {trusted.sizes.mean():.1f} trusted sentences
{sets.n_samples.mean():.1f} reports drawn for a strip; always drawing {sampler.k_max} would cost \
{sampler.k_max / sets.n_samples.mean():.1f} times as much
"""
print(summary)

# %% One page: new strips with their sets, and the reports on both calibrations
from sklearn_clm.inspection import CalibrationReport  # noqa: E402

page = HERE / "output" / "quickstart.html"
page.parent.mkdir(exist_ok=True)
style = "body{max-width:60rem;margin:auto;padding:1rem;font-family:sans-serif}pre{overflow:auto}"
parts = [
    "<h1>Reports on torn digits, with a promise</h1>",
    f"<pre>{summary}</pre><h2>New strips; trusted sentences are bold</h2>",
    *(
        f"<h3>The digits are {' '.join(map(str, shown))}</h3>{one._repr_html_()}"
        for shown, one in zip(digits[300:320], trusted)
    ),
    *(CalibrationReport.from_estimator(one).to_html() for one in (sampler, selector)),
]
page.write_text(
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quickstart</title>'
    '<meta name="viewport" content="width=device-width">'
    f'<meta name="color-scheme" content="light dark"><style>{style}</style>'
    f"{''.join(parts)}</html>",
    encoding="utf-8",
)
print(f"Wrote {page}")
