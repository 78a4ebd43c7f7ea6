"""What the compression tables are made of, against oracles of their own, on made-up conversations and a tiny model."""

import itertools
import json
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.distill import DistillConfig, Distiller
from gemjax.distill.baselines import RandomDrop, Truncation, self_information
from gemjax.errors import ConfigError, RequestError
from gemjax.evaluation import compression, locomo
from gemjax.evaluation.answer_loss import SHARES, answer_losses, bound_rows, full_text, summarise_bounds
from gemjax.evaluation.compression import Case, cases, compare, measures, stratified
from gemjax.evaluation.compression_run import evaluate, require_answers
from gemjax.evaluation.compressors import METHODS, chosen_methods, variants
from gemjax.evaluation.rankings import method_named
from gemjax.evaluation.remembering import RememberingModel
from gemjax.models.checkpoint import merged
from tests.distill.conftest import tiny_model
from tests.evaluation import dialogue

MODEL = RememberingModel(tiny_model())


@pytest.fixture
def read(tmp_path, hashing_encoder):
    conversations = locomo.load_locomo(dialogue.write(tmp_path / "locomo.json"))
    corpora = locomo.encode(conversations, hashing_encoder)
    return conversations, [method_named("cosine")(corpus, 8) for corpus in corpora]


@pytest.fixture
def chosen(read):
    return cases(*read)


def test_cases_have_their_turns_in_order_with_ranks_and_evidence(read):
    conversations, rankings = read
    found = cases(conversations, rankings)
    assert len(found) == 36  # the adversarial questions carry no answer
    for case in found:
        conversation = conversations[case.conversation]
        number = conversation.questions.index(case.question)
        best = rankings[case.conversation][number].tolist()
        assert [turn.text for turn in case.turns] == [conversation.texts[i] for i in sorted(best)]
        ranked = sorted(case.turns, key=lambda turn: -turn.score)
        assert [turn.text for turn in ranked] == [conversation.texts[i] for i in best]
        assert {case.turns[i].text for i in case.evidence} == {
            conversation.texts[g] for g in case.question.gold if g in best
        }
        assert all(turn.text[: turn.header] in ("Ann: ", "Bob: ") for turn in case.turns)


@pytest.mark.parametrize("sample", [1, 3, 9, 20, 36, 99])
def test_samples_have_equal_shares(chosen, sample):
    places = stratified(chosen, sample, seed=1)
    assert places == sorted(set(places)) and len(places) == min(sample, 36)
    assert places == stratified(chosen, sample, seed=1)
    shares = Counter((chosen[i].conversation, chosen[i].question.category) for i in places)
    assert max(shares.values()) - min(shares[key] for key in itertools.product(range(3), (1, 2, 4))) <= 1
    assert len({chosen[i].conversation for i in places}) == min(sample, 3)
    assert len({chosen[i].question.category for i in places}) == min(sample, 3)
    assert set(places) <= set(stratified(chosen, sample + 5, seed=1))
    if 1 < sample < 36:
        assert places != stratified(chosen, sample, seed=2)


def longest_common(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    return table[-1, -1]


@pytest.mark.parametrize("budget", [12, 40, 90, 10_000])
@pytest.mark.parametrize("method", [RandomDrop(MODEL), Truncation(MODEL, "retrieved"), Distiller(MODEL)])
def test_measures_by_brute_force(chosen, method, budget):
    for case in chosen[::7]:
        out = method.distill(case.turns, budget, case.question.text)
        got = measures(case, out)
        left = re.findall(r"\w+", re.sub(r"[^\w\s]", "", out.text.lower()))
        gold = re.findall(r"\w+", case.question.answer.lower())
        kinds = {word for word in gold if word != "the"}
        assert got["recall"] == sum(word in left for word in kinds) / len(kinds)
        content = kinds - {"of", "in"}
        assert got["content_recall"] == sum(word in left for word in content) / len(content)
        texts = [turn.text for turn in case.turns]
        characters = [np.zeros(len(text), bool) for text in texts]
        for turn, start, stop in out.spans:
            characters[turn][start:stop] = True
        kept = [texts[i] for i in case.evidence if 2 * characters[i].sum() >= len(texts[i])]
        assert got["evidence"] == len(kept)  # each of these questions has one gold turn
        assert got["ratio"] == MODEL.count(out.text) / MODEL.count("\n".join(texts))
        # Its words end in no letter that the stemmer takes off.
        rouge = longest_common(gold, re.findall(r"[a-z0-9]+", out.text.lower())) / len(gold)
        assert got["rouge_l"] == pytest.approx(rouge)


def test_what_cannot_be_measured_is_not_a_number(chosen, monkeypatch):
    out = Truncation(MODEL, "retrieved").distill(chosen[0].turns, 60)
    bare = locomo.Question("Q?", 3, True, (), (), "of it")
    got = measures(Case(0, bare, chosen[0].turns, ()), out)
    assert np.isnan(got["content_recall"]) and np.isnan(got["evidence"]) and 0 <= got["recall"] <= 1
    monkeypatch.setattr(compression, "_scorer", lambda: None)
    assert np.isnan(measures(chosen[0], out)["rouge_l"]) and compression.rouge_package() is None
    table = compare(chosen[:4], {"truncation-retrieved": Truncation(MODEL, "retrieved")}, budgets=(50,))
    assert table["truncation-retrieved"]["50"]["rouge_l"]["macro"] is None
    json.dumps(table, allow_nan=False)


def test_summaries_by_hand(chosen):
    methods = {"truncation-retrieved": Truncation(MODEL, "retrieved"), "random": RandomDrop(MODEL)}
    table = compare(chosen, methods, budgets=(60,))
    values = {
        name: np.array([measures(c, m.distill(c.turns, 60, c.question.text))["recall"] for c in chosen])
        for name, m in methods.items()
    }
    group = np.array([case.conversation for case in chosen])
    kind = np.array([case.question.category for case in chosen])
    got = table["random"]["60"]["recall"]
    assert got["n"] == 36
    assert got["micro"] == pytest.approx(values["random"].mean())
    assert got["macro"] == pytest.approx(np.mean([values["random"][group == g].mean() for g in range(3)]))
    assert got["by_conversation"]["2"] == pytest.approx(values["random"][group == 2].mean())
    assert set(got["categories"]) == {"1", "2", "4"}
    assert got["categories"]["2"]["name"] == "temporal" and got["categories"]["2"]["n"] == 12
    assert got["categories"]["2"]["value"] == pytest.approx(values["random"][kind == 2].mean())
    apart = values["random"] - values["truncation-retrieved"]
    assert got["difference"]["mean"] == pytest.approx(np.mean([apart[group == g].mean() for g in range(3)]))


def test_the_answers_loss_is_the_decoders(chosen):
    some = chosen[:3]
    texts = ["", full_text(some[1]), "Ann: Oslo."]
    got = answer_losses(some, texts, MODEL)

    @jax.jit
    def predictions(ids):
        decoder = merged(MODEL.config, MODEL.params)
        hidden = decoder(decoder.embed(ids), jnp.ones(len(ids), bool))
        return jax.nn.log_softmax(hidden @ decoder.head.T)

    for value, case, text in zip(got, some, texts, strict=True):
        prompt, answer = (
            MODEL.tokenizer.encode(part, add_special_tokens=False).ids
            for part in (f"{text}\n\nQuestion: {case.question.text}\nAnswer:", f" {case.question.answer}")
        )
        ids = jnp.array([*prompt, *answer])
        assert len(ids) <= MODEL.config.max_position_embeddings
        predicted = predictions(ids)
        want = -np.mean([predicted[i - 1, ids[i]] for i in range(len(prompt), len(ids))])
        assert value == pytest.approx(want, rel=1e-4)


def test_a_text_beyond_the_models_positions_loses_its_beginning(chosen):
    end = "Ann: Oslo. " * 200
    assert answer_losses(chosen[:1], ["x" * 999 + end], MODEL) == answer_losses(chosen[:1], [end], MODEL)


def test_bounds_hold_and_small_changes_are_of_first_order(chosen):
    rows = list(bound_rows(chosen[:4], MODEL, budget=60))
    assert len(rows) == 4 * len(SHARES)
    for row in rows:
        assert abs(row["first_order"]) <= row["bound"]
        if row["share"] == min(SHARES):
            # In float32 a loss of hundreds of nats is known to about 1e-4.
            assert row["change"] == pytest.approx(row["first_order"], rel=0.1, abs=2e-3)
    table = summarise_bounds(rows)
    assert [(row["share"], row["n"]) for row in table] == [(share, 4) for share in SHARES]
    assert table[0]["held"] == 4
    assert table[0]["bound"] == pytest.approx(np.mean([r["bound"] for r in rows if r["share"] == SHARES[0]]))
    assert not list(bound_rows(chosen[:2], MODEL, budget=9_999))


def test_one_reading_serves_methods_budgets_and_the_next_run(chosen, tmp_path):
    plain = tiny_model()

    def run(model):
        methods = (Distiller(model, DistillConfig.paper()), self_information(model), Distiller(model))
        return [
            method.distill(case.turns, budget, case.question.text).text
            for method in methods
            for case in chosen[:4]
            for budget in (40, 80)
        ]

    want = run(plain)
    first = RememberingModel(plain, tmp_path)
    assert run(first) == want
    once = sum(MODEL.count(full_text(case)) for case in chosen[:4])
    turns = {turn.text for case in chosen[:4] for turn in case.turns}
    assert 0 < first.tokens_read <= 1.6 * (once + sum(MODEL.count(text) for text in turns))  # windows overlap
    again = RememberingModel(plain, tmp_path)
    assert run(again) == want and again.tokens_read == 0


def test_turns_that_were_read_beforehand_are_not_read_again(chosen):
    model, plain = RememberingModel(tiny_model()), tiny_model()
    steps = []
    model.read_turns([turn.text for case in chosen for turn in case.turns] * 2, lambda *step: steps.append(step))
    texts = {turn.text for case in chosen for turn in case.turns}
    assert model.tokens_read == sum(MODEL.count(text) for text in texts)
    assert steps == [("reading each turn once", 0, 1)]
    before = model.tokens_read
    for case in chosen[:3]:
        pair = [Distiller(m, DistillConfig(keep=0.5)).distill(case.turns, 50) for m in (model, plain)]
        assert pair[0].text == pair[1].text
        np.testing.assert_allclose(pair[0].sensitivity, pair[1].sensitivity, rtol=1e-4)
    assert model.tokens_read == before


def test_padding_changes_no_reading():
    lengths = [1, 255, 256, 257, 320, 321, 511, 513, 1025]
    assert [MODEL.padded(n) for n in lengths] == [32, 256, 256, 320, 320, 384, 512, 640, 1280]
    ids = np.resize(tiny_model().tokenize("Caroline went to the support group yesterday, and so on. ").ids, 300)
    for ours, plain in (
        (RememberingModel(tiny_model()).surprisals([ids]), tiny_model().surprisals([ids])),
        (RememberingModel(tiny_model()).scores([ids], window=512)[0], tiny_model().scores([ids], window=512)[0]),
    ):
        for x, y in zip(ours, plain, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_weighted_and_other_readings_are_kept_apart():
    model, plain = RememberingModel(tiny_model()), tiny_model()
    ids = plain.tokenize("Caroline went to the support group.").ids
    ones, last = np.ones(len(ids), np.float32), np.eye(len(ids), dtype=np.float32)[-1]
    for _ in range(2):
        for weights in (None, [ones], [last]):
            got, want = (m.scores([ids], weights, window=256)[0] for m in (model, plain))
            for x, y in zip(got, want, strict=True):
                np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(model.surprisals([ids])[0], plain.surprisals([ids])[0])
        dropped = ids > 300
        assert model.ablated_loss(ids, dropped, 0.5) == plain.ablated_loss(ids, dropped, 0.5)
    assert model.tokens_read == 4 * len(ids)
    assert model.scores([], None, window=256) == []


def test_damaged_or_unwritable_stores_cost_speed_only(tmp_path):
    plain = tiny_model()
    ids = plain.tokenize("Caroline went.").ids
    want = RememberingModel(plain, tmp_path / "new" / "folder").surprisals([ids])[0]
    (store,) = (tmp_path / "new" / "folder").iterdir()
    store.write_bytes(b"no database" * 1000)
    for _ in range(2):
        model = RememberingModel(plain, tmp_path / "new" / "folder")
        np.testing.assert_array_equal(model.surprisals([ids])[0], want)
    assert model.tokens_read == 0  # the damaged file was replaced
    (tmp_path / "file").write_text("")
    np.testing.assert_array_equal(RememberingModel(plain, tmp_path / "file").surprisals([ids])[0], want)


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_store_changes_no_reading(kept_readings, where, bit):
    """SQLite does not check its pages: what a row holds may be another number."""
    content, ids, want, folder = kept_readings
    damaged = bytearray(content)
    damaged[int(where * len(damaged))] ^= 1 << bit
    (store,) = folder.glob("*.sqlite")
    store.write_bytes(damaged)
    for sequence, values in zip(ids, want, strict=True):
        np.testing.assert_array_equal(RememberingModel(MODEL, folder).surprisals([sequence])[0], values)


@pytest.fixture(scope="module")
def kept_readings(tmp_path_factory):
    """The bytes of a store, the texts that it holds, what was read of them, and its folder."""
    folder = tmp_path_factory.mktemp("readings")
    model = RememberingModel(tiny_model(), folder)
    ids = [model.tokenize(f"Caroline went to the group number {n}, and so on. " * 20).ids[:256] for n in range(3)]
    want = [model.surprisals([sequence])[0] for sequence in ids]
    del model
    (store,) = folder.glob("*.sqlite")
    return store.read_bytes(), ids, want, folder


def test_variants_change_their_parents():
    every, cheap = variants(), variants(each_question=False)
    assert cheap.keys() < every.keys() and all(v.reads != "questions" for v in cheap.values())
    assert {"selection", "fdtd", "fdtd-paper", "selection, question's loss, product", "fdtd, knapsack"} <= every.keys()
    for name, variant in every.items():
        if variant.parent is None:
            assert name in METHODS
        else:
            assert variant.recipe != every[variant.parent].recipe, name
    for name in ("fdtd", "fdtd-paper"):
        made = METHODS[name].make(MODEL)
        assert isinstance(made, Distiller) and made.config.recipe() == every[name].recipe


def test_chosen_methods():
    assert list(chosen_methods(["random"])) == ["truncation-retrieved", "random"]
    assert "fdtd-paper" not in chosen_methods(None, each_question=False)
    assert {"fdtd-paper", "self-information"} < chosen_methods(None).keys()
    with pytest.raises(ConfigError, match="unknown methods 'best'; there are truncation-retrieved"):
        chosen_methods(["random", "best"])
    with pytest.raises(ConfigError, match="unknown ranking 'fast'; there are cosine"):
        method_named("fast")


def test_everything_and_an_interruption(read):
    conversations, rankings = read
    chosen = cases(conversations, rankings, sample=6)
    methods = chosen_methods(["fdtd", "fdtd-paper"])
    some = {name: v for name, v in variants().items() if name in ("fdtd", "fdtd, knapsack", "fdtd-paper")}
    settings = {"variants": some, "budgets": (30, 60), "losses": 3, "bounds": 2}
    report = evaluate(conversations, chosen, MODEL, methods, **settings)
    json.dumps(report, allow_nan=False)
    assert not report["interrupted"] and report["questions"] == 6
    assert list(report["methods"]) == ["truncation-retrieved", "fdtd", "fdtd-paper"]
    assert list(report["ablations"]) == ["truncation-retrieved", *some]
    changed = report["ablations"]["fdtd, knapsack"]["30"]["recall"]["change"]["mean"]
    macro = {name: report["ablations"][name]["30"]["recall"]["macro"] for name in some}
    assert changed == pytest.approx(macro["fdtd, knapsack"] - macro["fdtd"])
    assert report["answer_loss"]["n"] == 3 and report["answer_loss"]["methods"].keys() == methods.keys()
    losses = report["answer_loss"]["methods"]["fdtd"]["60"]
    assert losses["above_baseline"]["of"] == 3
    # The tiny model reads 512 tokens at most; ten turns are longer than the budget.
    assert report["bounds"]["by_share"][0]["share"] == SHARES[0]

    def stop_at(step):
        def progress(what, done, total):
            if what.startswith(step) and done == 1:
                raise KeyboardInterrupt

        return evaluate(conversations, chosen, MODEL, methods, **settings, progress=progress)

    stopped = stop_at("fdtd-paper")
    assert stopped["interrupted"] and list(stopped["methods"]) == ["truncation-retrieved", "fdtd"]
    assert stopped["methods"]["fdtd"] == report["methods"]["fdtd"] and "ablations" not in stopped
    stopped = stop_at("answers given fdtd,")
    assert list(stopped["answer_loss"]["methods"]) == ["truncation-retrieved"]
    assert stopped["ablations"] == report["ablations"] and "bounds" not in stopped


def test_numbers_that_make_no_sense(read):
    conversations, rankings = read
    for wrong, message in (
        ({"budgets": (5, 0)}, r"budgets\[1\] = 0; expected"),
        ({"losses": -1}, "losses = -1"),
        ({"bounds": -1}, "bounds = -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(conversations, cases(*read), MODEL, {}, **wrong)
    with pytest.raises(ConfigError, match="sample = 0; expected a whole number of at least 1"):
        cases(conversations, rankings, sample=0)
    silent = [locomo.Talk("c", ("D1:1",), ("Ann: hi",), (locomo.Question("q", 4, False, (), ()),))]
    with pytest.raises(RequestError, match="no question carries an answer"):
        require_answers(silent)
