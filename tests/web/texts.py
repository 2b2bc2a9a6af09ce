"""Twenty texts, short and hostile, as a model's ids."""

TEXTS = (
    "a", " ", "\n", "\0", "The cat sat down.", "You may copy the Program.", "  two  blanks  ", "\r\n\ttabs\r\n", "don't, won't; can't!",
    "3.14159 + 2.71828 = 5.85987", "naïve café Ångström", "Привет, мир", "Καλημέρα κόσμε", "שלום עולם", "مرحبا بالعالم", "日本語のテキスト", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "e\u0301\u0323\u0302 \u202eabc\u202c \ufeff\u200d", "a" * 500, "".join(chr(33 + 7 * i % 90) for i in range(700)),
)  # fmt: skip
assert len(set(TEXTS)) == 20


def ids_of_bytes(text, vocab, context):
    """At most as many as the context has; of a vocabulary that is smaller than a byte's every byte's rest."""
    return [byte % vocab for byte in text.encode()][:context]
