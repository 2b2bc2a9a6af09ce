#!/usr/bin/env python3
"""Makes data/golden.safetensors: experiments on the small models of tests/lm/data, by hooks in transformers.

    pip install torch transformers safetensors
    tests/experiment/make_golden.py

A head is changed in the input of its layer's output projection. For each family there are "ids" and a second text,
"other"; "zero", "mean" and "uniform", (layers, heads): the mean loss without that head, and
"estimated_zero", …, what its gradient by PyTorch's autograd promises, "estimated_pair" of the tokens "pair"; logits where one head is patched
from the other text, "patched", where the last layer is skipped, "skipped", where its feed-forward is, "thoughtless", and
where nobody sees the third key, "hidden"; the lens's "lens" losses; "stream" and "heads" of activation patching of the
tokens "pair"; "rollout"; "previous", "duplicate" and "induction" of the tokens "twice"; and of direct logit attribution
"parts", the heads', by frozen norms. Committed files were made by transformers 5.24.0 and PyTorch 2.15.0, in float64.
"""

import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModel, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "golden"))
from kept import kept  # noqa: E402

MODELS = HERE.parent / "lm" / "data"
torch.set_grad_enabled(False)


class Model:
    def __init__(self, family):
        kind = AutoModel if family == "bert" else AutoModelForCausalLM
        folder = "gpt2/tied-tanh-f32" if family == "gpt2" else family
        self.model = kind.from_pretrained(MODELS / folder, attn_implementation="eager", dtype=torch.float64).eval()
        c = self.config = self.model.config
        if family == "gpt2":
            self.layers, self.norm = self.model.transformer.h, self.model.transformer.ln_f
            self.outs, self.mlps = [b.attn.c_proj for b in self.layers], [b.mlp for b in self.layers]
            self.heads = self.kv = c.n_head
        elif family == "bert":
            self.layers = self.model.encoder.layer
            self.outs, self.heads = [b.attention.output.dense for b in self.layers], c.num_attention_heads
        else:
            self.layers, self.norm = self.model.model.layers, self.model.model.norm
            self.outs, self.mlps = [b.self_attn.o_proj for b in self.layers], [b.mlp for b in self.layers]
            self.heads, self.kv = c.num_attention_heads, c.num_key_value_heads
        self.windows = [None] * len(self.layers)
        if family == "gemma2":
            self.windows = [c.sliding_window if t == "sliding_attention" else None for t in c.layer_types]
        self.family = family

    def run(self, ids, changes=(), **more):
        """changes: (module, before, f): f takes the module's input, or its output, and returns another."""
        hooks = []
        for module, before, f in changes:
            if before:
                hooks.append(module.register_forward_pre_hook(lambda m, a, f=f: (f(a[0]), *a[1:])))
            else:
                def replaced(m, a, out, f=f):
                    return (f(a[0], out[0]), *out[1:]) if isinstance(out, tuple) else f(a[0], out)
                hooks.append(module.register_forward_hook(replaced))
        out = self.model(torch.tensor([ids]), use_cache=False, **more)
        for hook in hooks:
            hook.remove()
        return out

    def logits(self, ids, changes=(), **more):
        return self.run(ids, changes, **more).logits[0]

    def slice(self, head):
        d = (self.outs[0].weight.shape[0 if self.family == "gpt2" else 1]) // self.heads
        return slice(head * d, (head + 1) * d)

    def head(self, layer, head, f):
        def change(z):
            z = z.clone()
            z[..., self.slice(head)] = f(z[..., self.slice(head)])
            return z
        return (self.outs[layer], True, change)

    def contexts(self, ids):
        kept = [None] * len(self.layers)
        def keep(layer):
            def f(z):
                kept[layer] = z.clone()
                return z
            return f
        self.run(ids, [(out, True, keep(i)) for i, out in enumerate(self.outs)])
        return kept

    def values(self, ids):
        """Each layer's values, (heads, t, d)."""
        kept = [None] * len(self.layers)
        changes = []
        for i, layer in enumerate(self.layers):
            module = layer.attn.c_attn if self.family == "gpt2" else layer.self_attn.v_proj
            def keep(x, y, i=i):
                v = y[0].chunk(3, -1)[2] if self.family == "gpt2" else y[0]
                v = v.reshape(len(ids), self.kv, -1).transpose(0, 1)
                kept[i] = v.repeat_interleave(self.heads // self.kv, 0)
                return y
            changes.append((module, False, keep))
        self.run(ids, changes)
        return kept


def cross_entropy(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))


def loss(logits, ids):
    return cross_entropy(logits, ids).item()


def seen_mean(v, window):
    return torch.stack([v[max(0, i + 1 - (window or i + 1)) : i + 1].mean(0) for i in range(len(v))])


def estimates(m, ids, measure, others):
    """Attribution patching by autograd: for each of `others`, f(layer, head, z), the measure that the gradient promises
    when a head gives that in place of z, (layers, heads)."""
    kept = []
    def keep(z):
        kept.append(z)
        z.retain_grad()
        return z
    with torch.enable_grad():
        value = measure(m.logits(ids, [(out, True, keep) for out in m.outs]))
        value.backward()
    def promised(f, l, h):
        z, g = kept[l][0, :, m.slice(h)].detach(), kept[l].grad[0, :, m.slice(h)]
        return (value.detach() + (g * (f(l, h, z) - z)).sum()).item()
    return [np.array([[promised(f, l, h) for h in range(m.heads)] for l in range(len(m.layers))]) for f in others]


def frozen(norm, x, u, one, layered):
    """The direction by which the norm's input is read, where u reads its output."""
    x = x - x.mean() if layered else x
    eps = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)
    u = u * (norm.weight + one) / torch.sqrt((x * x).mean() + eps)
    return u - u.mean() if layered else u


def parts(m, ids, pair):
    """Each head's share of the logit difference at the last position."""
    weight = m.model.lm_head.weight
    u = (weight[pair[0]] - weight[pair[1]]) / getattr(m.config, "logits_scaling", 1.0)
    layered, one = m.family == "gpt2", 1.0 if m.family == "gemma2" else 0.0
    kept = {}
    def keep(key):
        def f(x):
            kept[key] = x[0, -1].clone()
            return x
        return f
    changes = [(m.norm, True, keep("last"))]
    for i, layer in enumerate(m.layers):
        if m.family == "gemma2":
            changes.append((layer.post_attention_layernorm, True, keep(i)))
    m.run(ids, changes)
    into = frozen(m.norm, kept["last"], u, one, layered)
    table, z = np.zeros((len(m.layers), m.heads)), m.contexts(ids)
    for i, layer in enumerate(m.layers):
        g = into * getattr(m.config, "residual_multiplier", 1.0)
        if m.family == "gemma2":
            g = frozen(layer.post_attention_layernorm, kept[i], g, one, False)
        w = m.outs[i].weight.T if m.family == "gpt2" else m.outs[i].weight
        for h in range(m.heads):
            table[i, h] = g @ (w[:, m.slice(h)] @ z[i][0, -1, m.slice(h)])
    return table


def golden(family, rng):
    m = Model(family)
    layers, t, vocab = len(m.layers), 9, min(50, m.config.vocab_size)
    ids, other = rng.integers(0, vocab, t).tolist(), rng.integers(0, vocab, t).tolist()
    out = {"ids": np.array(ids), "other": np.array(other)}
    if family == "bert":
        out["hidden"] = m.run(ids, [m.head(1, 2, torch.zeros_like)]).last_hidden_state[0].numpy()
        a = [w[0].mean(0) for w in m.run(ids, output_attentions=True).attentions]
        roll = torch.eye(t)
        out["rollout"] = torch.stack([roll := (w + torch.eye(t)) / 2 @ roll.to(w.dtype) for w in a]).numpy()
        return out
    zero, mean = torch.zeros_like, lambda z: z.mean(1, keepdim=True).expand_as(z)
    values = m.values(ids)
    def table(f):
        return np.array([[loss(m.logits(ids, [m.head(l, h, f(l, h))]), ids) for h in range(m.heads)]
                         for l in range(layers)])  # fmt: skip
    out["before"] = np.array(loss(m.logits(ids), ids))
    out["zero"], out["mean"] = table(lambda l, h: zero), table(lambda l, h: mean)
    def uniform(l, h):
        # Values that were captured in the pass without edits are those of this pass: nothing changes before the head.
        return lambda z: seen_mean(values[l][h], m.windows[l])[None]
    out["uniform"] = table(uniform)
    others = [lambda l, h, z: 0 * z, lambda l, h, z: z.mean(0), lambda l, h, z: seen_mean(values[l][h], m.windows[l])]
    for name, promised in zip(("zero", "mean", "uniform"), estimates(m, ids, lambda x: cross_entropy(x, ids), others)):
        out["estimated_" + name] = promised
    z_other = m.contexts(other)
    out["patched"] = m.logits(ids, [m.head(0, 1, lambda z: z_other[0][..., m.slice(1)])]).numpy()
    out["skipped"] = m.logits(ids, [(m.layers[-1], False, lambda x, y: x)]).numpy()
    quiet = m.layers[-1].post_feedforward_layernorm if family == "gemma2" else m.mlps[-1]
    out["thoughtless"] = m.logits(ids, [(quiet, False, lambda x, y: torch.zeros_like(y))]).numpy()
    mask = torch.ones(1, t, dtype=torch.long)
    mask[0, 2] = 0
    out["hidden"] = m.logits(ids, attention_mask=mask, position_ids=torch.arange(t)[None]).numpy()
    streams = []
    def keep_input(layer):
        def f(x):
            streams.append(x.clone())
            return x
        return (m.layers[layer], True, f)
    def streams_of(text):
        streams.clear()
        last = []
        m.run(text, [keep_input(l) for l in range(layers)] + [(m.norm, True, lambda x: last.append(x.clone()) or x)])
        return [*streams, *last]
    read = []
    cap = getattr(m.config, "final_logit_softcapping", None)
    for x in streams_of(ids):
        logits = m.model.lm_head(m.norm(x))[0] / getattr(m.config, "logits_scaling", 1.0)
        logits = torch.tanh(logits / cap) * cap if cap else logits
        read.append(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none").numpy())
    out["lens"] = np.stack(read)
    pair = out["pair"] = np.array([7, 11])
    def difference(changes, text):
        last = m.logits(text, changes)[-1]
        return (last[pair[0]] - last[pair[1]]).item()
    clean, corrupt = difference([], ids), difference([], other)
    out["estimated_pair"] = estimates(m, ids, lambda x: x[-1][pair[0]] - x[-1][pair[1]], others[:1])[0]
    good, z_good = streams_of(ids), m.contexts(ids)
    def at(l, p):
        def f(x):
            x = x.clone()
            x[0, p] = good[l][0, p]
            return x
        return (m.layers[l], True, f)
    share = lambda value: (value - corrupt) / (clean - corrupt)
    out["stream"] = np.array([[share(difference([at(l, p)], other)) for p in range(t)] for l in range(layers)])
    out["heads"] = np.array([[share(difference([m.head(l, h, lambda z: z_good[l][..., m.slice(h)])], other))
                              for h in range(m.heads)] for l in range(layers)])  # fmt: skip
    roll = torch.eye(t, dtype=torch.float64)
    a = m.run(ids, output_attentions=True).attentions
    out["rollout"] = torch.stack([roll := (w[0].double().mean(0) + torch.eye(t)) / 2 @ roll for w in a]).numpy()
    twice = rng.integers(0, vocab, 6).tolist() * 2
    out["twice"] = np.array(twice)
    a = m.run(twice, output_attentions=True).attentions
    for name, offset in (("previous", 1), ("duplicate", 6), ("induction", 5)):
        out[name] = torch.stack([w[0].double().diagonal(-offset, -2, -1).mean(-1) for w in a]).numpy()
    out["parts"] = parts(m, ids, pair)
    return out


def main():
    rng = np.random.default_rng(34)
    tensors = {}
    for family in ("gpt2", "llama", "gemma2", "granite", "bert"):
        for name, value in golden(family, rng).items():
            tensors[f"{family}.{name}"] = np.ascontiguousarray(kept(torch.from_numpy(value)).numpy())
    save_file(tensors, HERE / "data" / "golden.safetensors")


if __name__ == "__main__":
    main()
