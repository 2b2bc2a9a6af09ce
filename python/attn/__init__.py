"""Attention on the CPU: fused kernels, forward and backward, for NumPy, PyTorch and JAX.

    >>> import attn
    >>> out = attn.scaled_dot_product_attention(q, k, v, is_causal=True)

Modules by the names of the book's notebooks (MultiHeadAttention, …) are here for NumPy arrays; attn.torch has them as
torch.nn modules, and importing attn.transformers registers attn_implementation="attn" for Hugging Face models.
"""

from attn import modules, steps
from attn._attention import merge, scaled_dot_product_attention
from attn._attn import __version__  # type: ignore[attr-defined]
from attn._linear_attention import causal_convolution, linear_attention
from attn._random import Generator, default_generator, manual_seed, rand, randint, randn
from attn._rotary import RotaryFrequencies, rotary, rotary_frequencies
from attn.cache import KVCache
from attn.encoders import Encoder
from attn.experiments import Experiment, experiment
from attn.explanations import explain
from attn.language_models import LanguageModel, Tokenizer, Writing, kept_models, load
from attn.modules import *  # noqa: F403
from attn.plots import Figure, plot
from attn.reports import Report, report
from attn.scores import ScoreFunction, score_function
from attn.words import embed_words, split_words

__all__ = [
    "Encoder", "Experiment", "Figure", "Generator", "KVCache", "LanguageModel", "Report", "RotaryFrequencies",
    "ScoreFunction", "Tokenizer", "Writing", "__version__", "causal_convolution", "default_generator", "embed_words",
    "experiment", "explain", "kept_models", "linear_attention", "load", "manual_seed", "merge", "plot", "rand", "randint",
    "randn", "report", "rotary", "rotary_frequencies", "scaled_dot_product_attention", "score_function", "split_words", "steps",
]  # fmt: skip
__all__ += modules.__all__
