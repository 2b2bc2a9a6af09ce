"""Writes 000.inc: what seed notebook 000 prints, which was saved without its outputs.

Runs the notebook's cells in PyTorch (any version, on the CPU):

    python3 run_000.py > 000.inc
"""

import torch
from torch import nn


def show(key, value):
    print(f"@ {key}\n{value!s}")


print('R"printed(', end="")
inputs = torch.tensor(
    [[0.43, 0.15, 0.89],
     [0.55, 0.87, 0.66],
     [0.57, 0.85, 0.64],
     [0.22, 0.58, 0.33],
     [0.77, 0.25, 0.10],
     [0.05, 0.80, 0.55]]
)
query = inputs[1]
scores_2 = torch.stack([torch.dot(x, query) for x in inputs])
show("scores of query 2, by loop", scores_2)
by_sum = scores_2 / scores_2.sum()
show("weights of query 2, by sum", by_sum)
show("weights of query 2, by sum: their sum", by_sum.sum())
naive = torch.exp(scores_2) / torch.exp(scores_2).sum(dim=0)
show("weights of query 2, naive softmax", naive)
show("weights of query 2, naive softmax: their sum", naive.sum())
stable = torch.softmax(scores_2, dim=0)
show("weights of query 2, stable softmax", stable)
show("weights of query 2, stable softmax: their sum", stable.sum())
context_2 = sum(w * x for w, x in zip(stable, inputs))
show("context of query 2", context_2)
show("plot: the seventh point, journey-context", torch.tensor([0.4419, 0.6515, 0.5683]))
show("scores, by loop", torch.tensor([[torch.dot(a, b) for b in inputs] for a in inputs]))
scores = inputs @ inputs.T
show("scores, by matmul", scores)
weights = torch.softmax(scores, dim=-1)
show("weights", weights)
show("row 2 sum", sum([0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581]))
show("all row sums", weights.sum(dim=-1))
show("all contexts", weights @ inputs)
show("previous context of query 2", context_2)

torch.manual_seed(123)
W_query, W_key, W_value = (torch.rand(3, 2) for _ in range(3))
query_2 = inputs[1] @ W_query
keys, values = inputs @ W_key, inputs @ W_value
show("v1: query 2", query_2)
show("v1: keys.shape", keys.shape)
show("v1: values.shape", values.shape)
show("v1: score 22", query_2.dot(keys[1]))
show("v1: scores of query 2", query_2 @ keys.T)
weights_2 = torch.softmax(query_2 @ keys.T / 2**0.5, dim=-1)
show("v1: weights of query 2", weights_2)
show("v1: context of query 2", weights_2 @ values)
show("v1: all contexts", torch.softmax(inputs @ W_query @ keys.T / 2**0.5, dim=-1) @ values)
show("v1: second row, as the text quotes it", torch.tensor([0.3061, 0.8210]))

torch.manual_seed(789)
with torch.no_grad():
    to_query, to_key, to_value = (nn.Linear(3, 2, bias=False) for _ in range(3))
    scores = to_query(inputs) @ to_key(inputs).T
    weights = torch.softmax(scores / 2**0.5, dim=-1)
    show("v2: all contexts", weights @ to_value(inputs))
    show("v2: weights", weights)
    tril = torch.tril(torch.ones(6, 6))
    show("mask: tril", tril)
    show("mask: weights * tril", weights * tril)
    show("mask: renormalised", weights * tril / (weights * tril).sum(dim=1, keepdim=True))
    masked = scores.masked_fill(torch.triu(torch.ones(6, 6), diagonal=1).bool(), -torch.inf)
    show("mask: scores with -inf", masked)
    show("mask: softmax of the masked scores", torch.softmax(masked / 2**0.5, dim=1))
print(')printed"')
