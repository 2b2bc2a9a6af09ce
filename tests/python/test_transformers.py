"""attn_implementation="attn": what transformers hands over besides queries, keys and values. Models: test_families.py."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn.transformers  # noqa: E402, F401

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use


def test_from_config_by_name():
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=64)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn")
    assert model.config._attn_implementation == "attn"


WITH_THEIR_OWN = {  # attention, which takes no mask of booleans, and none for what is causal
    "bloom": {"n_layer": 2, "n_head": 4, "hidden_size": 32}, "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "xglm": {"d_model": 32, "ffn_dim": 40, "num_layers": 2, "attention_heads": 4, "max_position_embeddings": 64},
    "mpnet": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40},
    "longformer": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "attention_window": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_THEIR_OWN)
@pytest.mark.parametrize("wrapped", [False, True])
def test_models_with_attention_of_their_own_are_refused(name, wrapped):
    config = transformers.AutoConfig.for_model(name, vocab_size=60, **WITH_THEIR_OWN[name])
    model = transformers.AutoModel.from_config(config, attn_implementation="attn").eval()
    torch._dynamo.reset()
    call = torch.compile(model, backend="eager") if wrapped else model
    with torch.no_grad(), pytest.raises(Exception, match=f"with its own, in modeling_{name}; load it with attn_implementation"):
        call(torch.randint(4, 60, (1, 12)))


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_models_that_are_as_old_and_go_by_the_interface(name):
    config = transformers.AutoConfig.for_model(name, vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
    model = transformers.AutoModel.from_config(config).eval()
    ids, seen, found = torch.randint(4, 60, (2, 12)), torch.ones(2, 12, dtype=torch.long), []
    seen[1, :5] = 0
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(model(ids, attention_mask=seen)[0][seen.bool()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_of_which_some_layers_go_by_the_interface(wrapped):
    """GIT's pictures do, and its words are beside it, behind a mask that no parameters say."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
    vision = {**sizes, "image_size": 16, "patch_size": 8, "projection_dim": 8}
    config = transformers.GitConfig(
        vocab_size=60, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, vision_config=vision, **sizes
    )
    model, found = transformers.GitForCausalLM(config).eval(), []
    inputs = {"input_ids": torch.randint(4, 60, (2, 6)), "pixel_values": torch.randn(2, 3, 16, 16)}
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        torch._dynamo.reset()
        call = torch.compile(model, backend="eager") if wrapped else model
        with torch.no_grad():
            found.append(call(**inputs).logits)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_mask_is_not_added_to_scores():
    seen = torch.tensor([[0, 1, 1, 1]])
    mask = attn.transformers.mask(1, 4, 4, attention_mask=seen)
    scores = torch.zeros(1, 2, 4, 4)
    for add in (lambda: scores + mask, lambda: mask + scores, lambda: torch.add(scores, mask), lambda: scores.add_(mask)):
        with pytest.raises(ValueError, match="found one that adds its mask"):
            add()
    assert (mask + mask).dtype == torch.bool


def test_position_bias_and_masks():
    q, bias = torch.randn(2, 3, 5, 4), torch.randn(1, 3, 5, 5)
    module = type("M", (), {"is_causal": True})()
    seen = torch.ones(5, 5, dtype=torch.bool).tril()
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q, torch.where(seen, bias, -torch.inf))
    for mask in (None, seen[None, None], torch.where(seen, 0.0, -torch.inf)[None, None]):
        output, _ = attn.transformers.attention_forward(module, q, q, q, mask, position_bias=bias)
        torch.testing.assert_close(output, want.transpose(1, 2))
    with pytest.raises(ValueError, match="paged"):
        attn.transformers.attention_forward(module, q, q, q, None, cache=object())


SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
WEIGHTS = {
    "a window": ("mistral", {**SMALL, "sliding_window": 3}),
    "sinks": ("gpt_oss", {**SMALL, "head_dim": 8, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "not told by its model": ("gpt2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                                       "bos_token_id": 1, "eos_token_id": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_where_they_are_asked_for(name):
    family, arguments = WEIGHTS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **arguments)).eval()
    ids, results = torch.randint(3, 97, (2, 7)), []
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        output = model(ids, output_attentions=True)
        output.logits.sum().backward()
        results.append([output.logits, *output.attentions])
    assert len(results[1]) == 3 and results[1][1].shape == (2, 4, 7, 7)
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not model(ids).get("attentions")


def test_a_window_stays_a_window(monkeypatch):
    """Its booleans would be tokens × tokens."""
    asked = []
    call = attn.transformers.scaled_dot_product_attention
    monkeypatch.setattr(attn.transformers, "scaled_dot_product_attention",
                        lambda *args, **options: asked.append((args[3:], options.get("window"))) or call(*args, **options))  # fmt: skip
    config = transformers.MistralConfig(**SMALL, sliding_window=3)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn").eval()
    ids = torch.randint(3, 97, (2, 7))
    model(ids)
    model.generate(ids, max_new_tokens=4, do_sample=False)
    assert len(asked) == 2 * 5 and set(asked) == {((), (2, -1))}


PADDED = {"left": [[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9], "right": [[1] * 9, [1, 1, 1, 1, 1, 0, 0, 0, 0]],
          "both": [[0, 0, 1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0, 0]], "one token": [[0] * 8 + [1], [1] * 9], "nothing": [[0] * 9, [1] * 9],
          "a hole": [[0, 1, 1, 0, 0, 1, 1, 1, 1], [1] * 9]}  # fmt: skip


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("window", [None, 3])
def test_padding_takes_no_booleans(monkeypatch, window, padding):
    """Parameters say where a padded text is, unless it has a hole. Rows of padding are sdpa's too, and so are gradients."""
    asked = []
    call = attn.transformers.scaled_dot_product_attention
    monkeypatch.setattr(attn.transformers, "scaled_dot_product_attention",
                        lambda *args, **options: asked.append((args[3:], options)) or call(*args, **options))  # fmt: skip
    torch.manual_seed(0)
    config = transformers.MistralConfig(**SMALL, sliding_window=window)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids, seen, results = torch.randint(3, 97, (2, 9)), torch.tensor(PADDED[padding]), []
    for implementation in ("sdpa", "attn"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        logits = model(ids, attention_mask=seen).logits
        logits.square().sum().backward()
        results.append([logits, *(p.grad.clone() for p in model.parameters())])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    says_all = padding != "a hole"
    assert len(asked) == 2
    for args, options in asked:
        assert ("key_lengths" in options) == says_all and (not args) == says_all
        assert options.get("window") == (None if window is None or not says_all else (2, -1))


@pytest.mark.parametrize("padding", PADDED)
def test_padded_texts_are_continued_as_by_sdpa(padding):
    torch.manual_seed(1)
    for window in (None, 4):
        config = transformers.MistralConfig(**SMALL, sliding_window=window)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        ids, results = torch.randint(3, 97, (2, 9)), []
        for implementation in ("sdpa", "attn"):
            model.set_attn_implementation(implementation)
            results.append(model.generate(ids, attention_mask=torch.tensor(PADDED[padding]), max_new_tokens=12,
                                          do_sample=False))  # fmt: skip
        assert torch.equal(*results)


def _prefill(cache):
    return lambda model, ids, seen: model(ids, attention_mask=seen, past_key_values=cache(model)).logits


def _in_pieces(cache):
    def read(model, ids, seen):
        kept, found = cache(model), []
        for first, last in ((0, 5), (5, 9), (9, 12)):
            some = None if seen is None else seen[:, :last]
            found.append(model(ids[:, first:last], attention_mask=some, past_key_values=kept).logits)
        return torch.cat(found, 1)

    return read


def _bare(model):
    return transformers.DynamicCache()


def _dynamic(model):
    return transformers.DynamicCache(config=model.config)


def _static(model):
    return transformers.StaticCache(config=model.config, max_cache_len=20)


def _texts(positions):
    return lambda model, ids, seen: model(ids, position_ids=torch.tensor(positions), use_cache=False).logits


MODELS = {"full": ("llama", {}), "window": ("mistral", {"sliding_window": 4}),
          "long window": ("mistral", {"sliding_window": 100}), "both": ("gemma2", {"head_dim": 8, "sliding_window": 4})}  # fmt: skip
WAYS = {"prefill": _prefill(_dynamic), "prefill, static": _prefill(_static), "pieces": _in_pieces(_dynamic),
        "pieces, no windows in the cache": _in_pieces(_bare), "pieces, static": _in_pieces(_static),
        "packed": _texts([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8]]),
        "packed alike": _texts([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]])}  # fmt: skip
TWELVE = {"no": None, "left": [[0] * 4 + [1] * 8, [1] * 12], "right": [[1] * 12, [1] * 8 + [0] * 4]}


def _written_out(monkeypatch):
    """A list that gets the shape of each mask whose values are made."""
    made = []

    def watch(owner, name):
        call = getattr(owner, name)

        def watched(*args, **options):
            found = call(*args, **options)
            made.extend([] if found is None else [tuple(found.shape)])
            return found

        monkeypatch.setattr(owner, name, watched)

    watch(attn.transformers, "sdpa_mask")
    watch(attn.transformers.LazyMask, "values")
    return made


def _compare(model, read, ids, seen, made, gradients=True):
    """Logits and gradients as sdpa's, those of padding too; the masks that were made for them.

    Where a model has eager attention alone, which fills rows that see no key with anything, rows of padding do not count.
    """
    results, other = [], "sdpa" if model._supports_sdpa else "eager"
    for implementation in (other, "attn"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        with torch.set_grad_enabled(gradients):
            logits = read(model, ids, seen)
        logits = logits if seen is None or other == "sdpa" else logits[seen.bool()]
        if gradients:
            logits.square().sum().backward()
        results.append([logits, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * max(1, want.abs().max().item()))
    return made


# transformers finds packed texts only where there is no mask for padding.
@pytest.mark.parametrize("way, padding", [(w, p) for w in WAYS for p in TWELVE if "packed" not in w or p == "no"])
@pytest.mark.parametrize("name", MODELS)
def test_no_mask_is_written_out_where_parameters_say_it(monkeypatch, name, way, padding):
    torch.manual_seed(2)
    family, more = MODELS[name]
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **more})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    seen = TWELVE[padding] and torch.tensor(TWELVE[padding])
    assert not _compare(model, WAYS[way], torch.randint(3, 97, (2, 12)), seen, _written_out(monkeypatch),
                        gradients="static" not in way)  # static caches are written in place


ENCODERS = {"bert": {}, "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 1,
                                       "sep_token_id": 2}}  # fmt: skip


@pytest.mark.parametrize("padding", TWELVE)
@pytest.mark.parametrize("family", ENCODERS)
def test_encoders_need_no_masks(monkeypatch, family, padding):
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **ENCODERS[family]})
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    seen = TWELVE[padding] and torch.tensor(TWELVE[padding])

    def read(model, ids, seen):
        return model(ids, attention_mask=seen).logits

    assert not _compare(model, read, torch.randint(3, 97, (2, 12)), seen, _written_out(monkeypatch))


@pytest.mark.parametrize("tokens", [7, 12])
def test_a_decoder_reads_a_padded_text_of_its_encoder(monkeypatch, tokens):
    """Padding of the encoder's keys says nothing about the decoder's queries, even where they are as many."""
    torch.manual_seed(4)
    config = transformers.BartConfig(vocab_size=97, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                                     decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=0,
                                     max_position_embeddings=32)  # fmt: skip
    model, answer = transformers.BartForConditionalGeneration(config).eval(), torch.randint(3, 97, (2, tokens))

    def read(model, ids, seen):
        return model(ids, attention_mask=torch.tensor(TWELVE["left"]), decoder_input_ids=answer).logits

    assert not _compare(model, read, torch.randint(3, 97, (2, 12)), None, _written_out(monkeypatch))


@pytest.mark.parametrize("case", ["T5's bias", "a function of the model's own"])
def test_what_still_takes_a_mask(monkeypatch, case):
    """As docs/python.md says: transformers has functions that are only known by what they answer."""
    torch.manual_seed(5)
    ids, made = torch.randint(3, 97, (2, 12)), _written_out(monkeypatch)
    if case == "T5's bias":
        config = transformers.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, pad_token_id=0)
        model = transformers.T5ForConditionalGeneration(config).eval()
        seen = torch.tensor(TWELVE["left"])
        assert _compare(model, lambda m, ids, _: m(ids, attention_mask=seen, decoder_input_ids=ids).logits, ids, None, made)
        return
    config = transformers.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=4, use_bidirectional_attention=True)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    assert set(_compare(model, lambda m, ids, _: m(ids).logits, ids, None, made)) == {(2, 1, 12, 12)}


SILENT = {  # layers without is_causal, and a decoder's whose is_causal is False, of models that have eager attention alone
    "splinter": {**SMALL, "intermediate_size": 40},
    "bigbird_pegasus": {"vocab_size": 97, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 40,
                        "decoder_ffn_dim": 40, "encoder_attention_heads": 4, "decoder_attention_heads": 4},
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", SILENT)
def test_layers_need_not_say_whether_they_are_causal(family, compiled):
    torch.manual_seed(9)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(family, **SILENT[family])).eval()
    ids, found = torch.randint(3, 97, (2, 12)), []
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        torch._dynamo.reset()
        call = torch.compile(model, backend="eager") if compiled and implementation == "attn" else model
        with torch.no_grad():
            found.append(call(ids, **more)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_mask_is_not_changed_in_place():
    mask = attn.transformers.LazyMask.of((1, 1, 4, 4), 2)
    with pytest.raises(ValueError, match="not changed in place"):
        mask[:, :, 0] = True


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("tq, tk", [(7, 7), (1, 9), (3, 9)])
def test_what_reads_a_window_finds_its_values(tq, tk, padded):
    seen = torch.rand(2, tk, generator=torch.Generator().manual_seed(5)) > 0.4 if padded else None
    window = attn.transformers.LazyMask.of((2, 1, tq, tk), 2, seen)
    function = transformers.masking_utils.sliding_window_causal_mask_function(3)
    want = transformers.masking_utils.sdpa_mask(2, tq, tk, tk - tq, mask_function=function, attention_mask=seen,
                                                allow_is_causal_skip=False)  # fmt: skip
    assert window.shape == want.shape and window.dtype == torch.bool
    for read in (torch.Tensor.clone, lambda m: m[:, :, -1:], lambda m: torch.where(m, 0.0, -1.0), lambda m: ~m,
                 lambda m: m.float(), lambda m: m[..., 1:].any(-1)):  # fmt: skip
        assert torch.equal(read(window), read(want)) and type(read(window)) is torch.Tensor


@pytest.mark.parametrize("columns", [10, 14])
@pytest.mark.parametrize("name", MODELS)
def test_a_mask_has_a_column_for_each_key(name, columns):
    """transformers fills up a short mask as padding, and cuts a long one."""
    family, more = MODELS[name]
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn").eval()
    with pytest.raises(ValueError, match="column for each of 12 keys"):
        model(torch.randint(3, 97, (2, 12)), attention_mask=torch.ones(2, columns, dtype=torch.long))


@pytest.mark.filterwarnings("ignore")  # deprecated names
@pytest.mark.parametrize("kind", ["dynamic", "static", "sliding_window", "hybrid"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_texts_with_each_cache(name, kind):
    torch.manual_seed(7)
    family, more = MODELS[name]
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **{**SMALL, **more})).eval()
    texts, ids = [], torch.randint(3, 97, (2, 9))
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        texts.append(model.generate(ids, attention_mask=torch.tensor(PADDED["left"]), max_new_tokens=8, do_sample=False,
                                    cache_implementation=kind, disable_compile=True))  # fmt: skip
    assert torch.equal(*texts)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    torch.manual_seed(8)
    config = transformers.AutoConfig.for_model("mistral", **SMALL, sliding_window=4)
    model, found = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn").train(), []
    ids = torch.randint(3, 97, (2, 12))
    for checkpoints in (False, True):
        if checkpoints:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.zero_grad()
        model(ids, attention_mask=torch.tensor(TWELVE["left"]), labels=ids, use_cache=False).loss.backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found)


def test_a_compiled_model():
    torch.manual_seed(9)
    config = transformers.AutoConfig.for_model("llama", **{**SMALL, "num_hidden_layers": 1})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn").eval()
    ids = torch.randint(3, 97, (2, 12))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        for seen in (None, torch.tensor(TWELVE["left"])):
            kept = slice(None) if seen is None else seen.bool()
            torch.testing.assert_close(compiled(ids, attention_mask=seen).logits[kept], model(ids, attention_mask=seen).logits[kept])
