"""Chat templates as transformers renders them, and as attn does, for the tests beside it."""

import datetime
import json
import subprocess
import warnings

import packages
from transformers.utils import chat_template_utils

HELPER = packages.ROOT / "build" / "default" / "tests" / "render_templates"
NOW = datetime.datetime(2024, 7, 26, 13, 5)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 13, 5)


def transformers_text(template, conversation):
    """The text, or None where the template raises."""
    given = dict(conversation) if isinstance(conversation, dict) else {"messages": conversation}
    messages = chat_template_utils._normalize_chat_messages(given.pop("messages"))
    chat_template_utils.datetime = Clock
    warnings.simplefilter("ignore")  # of Python, on the code that Jinja makes of a template
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, **{**TOKENS, **given}
        )
    except Exception as error:  # of Jinja, of Python, of the sandbox: all are refusals
        return None, f"{type(error).__name__}: {error}"
    return texts[0], None


def attn_answers(cases):
    """An answer, {"text": …} or {"error": …}, for each (template, conversation)."""
    lines = [
        json.dumps({"template": template, "tokens": TOKENS, "conversation": json.dumps(conversation)})
        for template, conversation in cases
    ]
    done = subprocess.run([str(HELPER)], input="\n".join(lines), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
