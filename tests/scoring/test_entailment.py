"""Entailment scores on tiny random checkpoints, against one pair at a time done by hand."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm._estimators._precision import in_batches
from sklearn_clm.generators import Generation
from sklearn_clm.generators.identity import score_fingerprint, tokenizer_state
from sklearn_clm.scoring import ClaimSupport, EntailmentScore, GroundedIn, threshold_admission
from sklearn_clm.scoring._components import get_component_score
from sklearn_clm.scoring.verdicts import judge

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = "the heart lungs are is clear large small no effusion ."
PAIRS = [
    ("the heart is large", "the heart is small"),
    ("no effusion", "the lungs are clear . no effusion . the heart is large"),
    ("the lungs are clear the heart is large no effusion . . .", "no effusion"),
]


def word_tokenizer(special=("<s>", "</s>")):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokens = ["<pad>", "<unk>", *special, *TEXT.split()]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[(token, ids[token]) for token in special],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=40
    )


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    labels = {0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        initializer_range=0.5,
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )
    path = tmp_path_factory.mktemp("bert")
    BertForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def loaded(classifier):
    """A model of its own with its tokenizer."""
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    return load(classifier).eval(), transformers.AutoTokenizer.from_pretrained(classifier)


def test_classifier_gives_the_probability_of_entailment(classifier, loaded):
    scores = EntailmentScore(classifier, batch_size=2).score_pairs(*zip(*PAIRS))
    model, tokenizer = loaded
    with torch.no_grad():
        alone = [
            float(model(**tokenizer(p, h, return_tensors="pt")).logits.softmax(-1)[0, 2])
            for p, h in PAIRS
        ]
    assert scores == pytest.approx(alone, rel=1e-5)
    assert len(set(scores)) == 3


def perturbed(model, size=8e-5):
    """The model, with an error that depends on the shape of the batch, as rounding has."""
    forward = model.forward

    def with_error(*args, **kwargs):
        output = forward(*args, **kwargs)
        rows, columns = kwargs["input_ids"].shape
        sign = 1 if (rows + columns) % 2 else -1
        output.logits[..., -1] += sign * size * (rows > 1)
        return output

    model.forward = with_error
    return model


def many_pairs(n=300):
    rng = np.random.default_rng(0)
    words = TEXT.split()
    sizes = rng.integers(1, 12, size=(n, 2))
    return [tuple(" ".join(rng.choice(words, size)) for size in row) for row in sizes]


def test_batches_give_what_each_pair_has_alone(classifier):
    pairs = many_pairs()
    alone = EntailmentScore(classifier, batch_size=1).score_pairs(*zip(*pairs))
    score = EntailmentScore(classifier)
    for batch_size in (7, 64):
        score.set_params(batch_size=batch_size)
        assert score.score_pairs(*zip(*pairs)) == pytest.approx(alone, rel=1e-5)
    assert [score(*pair) for pair in pairs[:20]] == alone[:20].tolist()
    assert score.score_pairs([], []).shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(loaded, tmp_path, dtype):
    model, tokenizer = loaded
    half = model.to(getattr(torch, dtype))
    half.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pairs = many_pairs(60)
    score = EntailmentScore(perturbed(copy.deepcopy(half), 0.1), tokenizer=tokenizer)
    assert score.score_pairs(*zip(*pairs)).tolist() == [score(*pair) for pair in pairs]
    assert score.model.dtype == getattr(torch, dtype)
    from_disk = EntailmentScore(tmp_path, batch_size=16).score_pairs(*zip(*pairs))
    single = EntailmentScore(half.float(), tokenizer=tokenizer, batch_size=1)
    assert from_disk == pytest.approx(single.score_pairs(*zip(*pairs)), rel=1e-5)


def test_a_model_in_training_scores_without_dropout(classifier, loaded):
    model, tokenizer = loaded
    expected = EntailmentScore(classifier).score_pairs(*zip(*PAIRS))
    model.train()
    score = EntailmentScore(model, tokenizer=tokenizer)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: score.score_pairs(*zip(*PAIRS * 5)), range(12)))
    assert all(np.array_equal(result, np.tile(expected, 5)) for result in results)


def test_a_long_premise_is_cut_and_the_hypothesis_kept(loaded):
    premise = "the heart is large . " * 30
    loaded[1].model_max_length = 20
    score = EntailmentScore(loaded[0], tokenizer=loaded[1])
    long = score.score_pairs([premise] * 2, ["no effusion", "the lungs are clear"])
    assert long[0] != long[1]
    # what is cut off does not matter
    assert score(premise + "no effusion", "no effusion") == pytest.approx(long[0], rel=1e-5)


def test_each_distinct_component_is_judged_once(classifier, monkeypatch):
    asked, probabilities = [], EntailmentScore._probabilities

    def noting(self, model, tokenizer, pairs):
        asked.extend(pairs)
        return probabilities(self, model, tokenizer, pairs)

    monkeypatch.setattr(EntailmentScore, "_probabilities", noting)
    score = GroundedIn(
        EntailmentScore(classifier, batch_size=1), lambda prompt: [prompt["text"], prompt["text"]]
    )
    draws = [Generation("no effusion . the heart is large"), Generation("no effusion .")]
    spans = [[(0, 13), (14, 32)], [(0, 13)]]
    (rows,) = score.score_components([{"text": "the heart is large"}], [draws], [spans])
    assert sorted(asked) == [
        ("the heart is large", "no effusion ."),
        ("the heart is large", "the heart is large"),
    ]
    assert [len(row) for row in rows] == [2, 1]
    assert rows[0][0] == rows[1][0]


def test_what_a_model_says_may_depend_on_the_batch(classifier):
    score = EntailmentScore(classifier)
    for around in (get_component_score(score), GroundedIn(score), ClaimSupport(score)):
        assert in_batches(around)
    for other in (
        ClaimSupport(),
        GroundedIn(lambda passage, claim: True),
        get_component_score(max),
    ):
        assert not in_batches(other)
    draws = [[Generation("no effusion .")], [Generation("the heart is large")]]
    spans = [[[(0, 11)]], [[(0, 18), (0, 9)]]]
    prompts = [TEXT, "no effusion"]
    scores = get_component_score(score).score_components(prompts, draws, spans)
    expected = [
        score(TEXT, "no effusion"),
        *(score(prompts[1], "the heart" + " is large" * k) for k in (1, 0)),
    ]
    assert np.concatenate([scores[0][0], scores[1][0]]) == pytest.approx(expected, rel=1e-5)


def test_clones_share_a_loaded_model_and_pickles_leave_it_behind(classifier, loaded):
    model, tokenizer = loaded
    score = EntailmentScore(model, tokenizer=tokenizer)
    assert clone(score).model is model
    named = EntailmentScore(str(classifier))
    first = named(*PAIRS[0])
    assert first == score(*PAIRS[0])
    assert len(pickle.dumps(named)) < 1000
    assert pickle.loads(pickle.dumps(named))(*PAIRS[0]) == first


def test_its_use_makes_no_other_score_of_it(loaded):
    model, tokenizer = loaded
    admission = threshold_admission(EntailmentScore(model, tokenizer=tokenizer), 0.7)
    before = score_fingerprint(admission)
    admission(*PAIRS[0])
    assert score_fingerprint(admission) == before
    other = EntailmentScore(model, tokenizer=word_tokenizer(("</s>", "<s>")))
    assert score_fingerprint(threshold_admission(other, 0.7)) != before
    for name, value in {"truncation_side": "left", "model_max_length": 5}.items():
        changed = copy.deepcopy(tokenizer)
        setattr(changed, name, value)
        score = EntailmentScore(model, tokenizer=changed)
        assert score_fingerprint(threshold_admission(score, 0.7)) != before


def test_a_tokenizer_written_in_python_is_known_by_what_it_does(tmp_path):
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "Paris"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    plain, lower, again = (
        legacy.BertTokenizerLegacy(str(tmp_path / "vocab.txt"), do_lower_case=one)
        for one in (False, True, False)
    )
    assert tokenizer_state(plain) == tokenizer_state(again) != tokenizer_state(lower)


def test_it_can_admit_components(classifier):
    score = EntailmentScore(classifier)
    value = score(*PAIRS[0])
    assert threshold_admission(score, value)(*PAIRS[0]) is True
    assert threshold_admission(score, value + 1e-3)(*PAIRS[0]) is False
    references, components = [pair[0] for pair in PAIRS], [[pair[1]] * 2 for pair in PAIRS]
    verdicts = judge(threshold_admission(score, value), references, components)
    assert [row.tolist() for row in verdicts] == [[score(*pair) >= value] * 2 for pair in PAIRS]


def test_another_model_is_loaded(classifier, loaded, tmp_path):
    model, tokenizer = loaded
    with torch.no_grad():
        model.classifier.bias += torch.tensor([0.0, 0.0, 2.0])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    score = EntailmentScore(classifier)
    first = score(*PAIRS[0])
    assert score.set_params(model=tmp_path)(*PAIRS[0]) > first
    assert score.set_params(model=classifier)(*PAIRS[0]) == first


def test_bad_input(classifier, loaded):
    for pair in ((1.0, "no effusion"), ("no effusion", None)):
        with pytest.raises(TypeError, match="pairs of texts"):
            EntailmentScore(classifier).score_pairs(*zip(PAIRS[0], pair))
    for name, wrong in {
        "entailment_label": EntailmentScore(classifier, entailment_label="yes"),
        "batch_size": EntailmentScore(classifier, batch_size=0),
        "tokenizer": EntailmentScore(loaded[0]),
    }.items():
        with pytest.raises(ValueError, match=name):
            wrong(*PAIRS[0])


def test_the_label_of_entailment_has_an_index_or_a_name(classifier):
    by_index, by_name, by_default = (
        EntailmentScore(classifier, entailment_label=label)(*PAIRS[0])
        for label in (2, "ENTAILMENT", None)
    )
    assert by_index == by_name == by_default


def test_weights_come_from_safetensors_only(loaded, tmp_path):
    model, tokenizer = loaded
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(OSError, match="safetensors"):
        EntailmentScore(tmp_path)(*PAIRS[0])
