"""A live page of an encoder: a text's tokens, steps and heads, and how near its vector is to that of a second text."""

import json
import shutil
import string
import struct

import library
from live_case import LivePage
from live_own_case import MODELS, TOKENIZERS, joined_gguf
from overview_case import MODEL

TEXT, OTHER = "the cat sat", "a dog ran"
SIMILAR = "document.getElementById('live-similar').textContent"


class LiveEncoder(LivePage):
    def folder_of_encoder(self):
        """The test's BERT with a tokenizer whose tokens are letters."""
        folder = self.folder / "encoder"
        if folder.exists():
            return folder
        shutil.copytree(MODELS / "bert", folder)
        description = json.loads((TOKENIZERS / "bert.json").read_text())
        tokens = [*(one["content"] for one in description["added_tokens"]), *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase)]
        description["model"]["vocab"] = {token: at for at, token in enumerate(tokens)}
        (folder / "tokenizer.json").write_text(json.dumps(description))
        (folder / "special_tokens_map.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]"}))
        return folder

    def encoder(self, text=TEXT, **options):
        page = self.open("--live", "--model", self.folder_of_encoder(), "--text", text, **options)
        self.wait(page, "Boolean(live.size)")
        return page

    @staticmethod
    def typed_second(text):
        return f"(() => {{ const field = document.getElementById('live-source'); field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"

    def second(self, page, text):
        page.run(self.typed_second(text))
        self.settled(page)

    def cosine(self, *arguments):
        said = json.loads(library.attn(self.folder, "embed", "--model", self.folder_of_encoder(), *arguments, TEXT, OTHER, "--json"))
        return said["texts"][0]["cosines"][1]

    def same_as_recorded(self, page, model):
        """A typed text has the steps that the command records."""
        self.assertEqual(page.run("report.tokens")[0].strip(), "[CLS]")
        self.type(page, "s")
        self.settled(page)
        recorded = self.open("--model", model, "--text", page.run("live.now.text"))
        recorded.run("openAll()")
        for at in range(2):
            for step in page.run(f"blocks[{at}].steps.map(({{ name }}) => name)"):
                numbers = f"Array.from(blocks[{at}].step({json.dumps(step)}).values)"
                self.assertTrue(page.run(numbers))
                for mine, theirs in zip(page.run(numbers), recorded.run(numbers), strict=True):
                    self.near(mine, theirs, 1e-5, step)
        self.assertEqual(page.run("report.tokens"), recorded.run("report.tokens"))

    def test_steps_follow_what_is_typed(self):
        self.same_as_recorded(self.encoder(), self.folder_of_encoder())

    def test_an_encoder_in_gguf(self):
        path, tokenizer = self.folder / "encoder.gguf", (TOKENIZERS / "bert.gguf").read_bytes()
        name = struct.pack("<Q", 21) + b"tokenizer.ggml.tokens"
        (tokens,) = struct.unpack_from("<Q", tokenizer, tokenizer.index(name) + len(name) + 8)  # behind two kinds
        path.write_bytes(joined_gguf((MODELS / "bert/model.gguf").read_bytes(), tokenizer, tokens))
        page = self.open("--live", "--model", path, "--text", TEXT)
        self.wait(page, "Boolean(live.size)")
        self.same_as_recorded(page, path)
        own = self.live(text=page.run("live.now.text"))
        own.choose("#live-files", path)
        self.wait(own, "live.file === 'encoder.gguf'")
        said = json.loads(library.attn(self.folder, "embed", "--model", path, "--pooling", "mean", page.run("live.now.text"), OTHER, "--json"))
        for one in (page, own):
            self.second(one, OTHER)
            self.near(one.run("live.similar.cosine"), said["texts"][0]["cosines"][1], 1e-6)

    def test_what_an_encoder_does_not_do_is_not_there(self):
        page = self.encoder()
        shown = lambda part: page.run(f"document.querySelector({json.dumps(part)}).checkVisibility()")  # noqa: E731
        self.assertEqual([part for part in ("#live-on", "#live-next", "#experiments") if shown(part)], [])
        self.assertTrue(shown("#live-source"))
        other = self.live()
        self.assertEqual(other.run("['live-source', 'live-on'].map((id) => document.getElementById(id).checkVisibility())"), [False, True])

    def test_two_texts(self):
        page = self.encoder()
        self.second(page, OTHER)
        self.near(page.run("live.similar.cosine"), self.cosine(), 1e-6)
        self.assertEqual(page.run("live.similar.cosine"), page.run("live.similar.before"))
        page.run("(() => { const list = document.getElementById('live-pooling'); list.value = 'first'; list.dispatchEvent(new Event('change')); })()")
        self.settled(page)
        self.near(page.run("live.similar.cosine"), self.cosine("--pooling", "first"), 1e-6)
        self.assertTrue(page.run(SIMILAR).startswith("cosine "))
        page.run("document.getElementById('edit-head').click()")
        self.settled(page)
        self.assertNotEqual(page.run("live.similar.cosine"), page.run("live.similar.before"))
        self.near(page.run("live.similar.before"), self.cosine("--pooling", "first"), 1e-6)
        self.assertIn("→", page.run(SIMILAR))
        page.run("document.getElementById('edit-undo').click()")
        self.settled(page)
        self.assertNotIn("→", page.run(SIMILAR))

    def test_addresses_hold_the_second_text(self):
        page = self.encoder()
        self.second(page, OTHER)
        self.wait(page, "location.hash.includes('source=')")
        again = self.encoder(fragment=page.run("location.hash"))
        self.wait(again, "live.similar !== undefined")
        self.assertEqual(again.run("[live.now.source, document.getElementById('live-source').value]"), [OTHER, OTHER])
        self.assertEqual(again.run("live.similar"), page.run("live.similar"))

    def test_texts_that_are_too_long_are_told(self):
        page = self.encoder()
        page.run(self.typed_second("x " * 40))
        self.wait(page, "/expected .*24.*; found /.test(document.getElementById('live-said').textContent)")
        self.second(page, OTHER)
        self.near(page.run("live.similar.cosine"), self.cosine(), 1e-6)

    def test_an_encoder_opens_where_a_model_was_and_the_other_way_round(self):
        page = self.live()
        folder = self.folder_of_encoder()
        page.choose("#live-files", *(folder / name for name in ("config.json", "tokenizer.json", "special_tokens_map.json", "model.safetensors")))
        self.wait(page, "live.file === 'model.safetensors'")
        self.settled(page)
        self.assertFalse(page.run("live.size.writes"))
        self.second(page, OTHER)
        self.assertLessEqual(abs(page.run("live.similar.cosine")), 1.000001)
        page.choose("#live-files", MODEL)
        self.wait(page, "live.size.writes")
        self.settled(page)
        self.assertTrue(page.run("live.next.tokens.length > 0"))
