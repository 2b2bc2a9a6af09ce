"""Names of files that no file has: refused, where a part of the name is another file's."""

import os

import attn
import numpy as np
import pytest

WEIGHTS = np.full((1, 2, 3, 3), 1 / 3, np.float32)


def test_a_null_character_ends_no_name(tmp_path):
    precious = tmp_path / "precious.svg"
    precious.write_text("precious")
    name = f"{precious}\0.svg"
    for call in (
        lambda: attn.plot(WEIGHTS).save(name),
        lambda: attn.report(WEIGHTS).save(name),
        lambda: attn.load(name),
        lambda: attn.Encoder(name),
        lambda: attn.experiment(name, "a text"),
        lambda: attn.kept_models(name),
    ):
        with pytest.raises(ValueError, match="without a null character"):
            call()
    assert precious.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["precious.svg"]


def test_a_name_of_bytes_that_are_no_text_is_refused(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.svg"
    for call in (lambda: attn.plot(WEIGHTS).save(name), lambda: attn.report(WEIGHTS).save(name), lambda: attn.load(name)):
        with pytest.raises(ValueError, match="a path in UTF-8"):
            call()


def test_a_name_may_be_bytes_and_its_ending_of_any_case(tmp_path):
    attn.plot(WEIGHTS).save(os.fsencode(tmp_path / "a.svg"))
    attn.plot(WEIGHTS).save(tmp_path / "B.SVG")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "B.SVG").read_text()
