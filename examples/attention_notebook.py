"""Makes examples/attention.ipynb, executed: python examples/attention_notebook.py [--check]

--check runs it again, and fails where an output differs from the committed one. Needs nbclient, nbformat, ipykernel.
"""

import pathlib
import sys

import nbclient
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = pathlib.Path(__file__).resolve().parent
PATH = HERE / "attention.ipynb"

CELLS = '''
%% text
# Attention, one step at a time

Six words, three numbers each. We compute by hand what attention does with them, then with `attn`'s modules, and end
with many heads. The numbers are those that the same steps print in PyTorch; PyTorch is not needed.
%% code
import numpy as np

import attn
from attn import steps


def show(x):
    print(steps.to_string(np.ascontiguousarray(x)))


words = ["Your", "journey", "starts", "with", "one", "step"]
inputs = np.array(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ],
    np.float32,
)
%% text
Three numbers are a place in space, so we can look at the words. *journey* and *starts* point almost the same way.
%% code
attn.plot(attn.SimplifiedSelfAttention(), inputs, figure="arrows", step="inputs", tokens=words)
%% text
## 1. Self-attention without weights

How much has each word to do with *journey*, the second one? The dot products say it: the **attention scores**.
%% code
query = inputs[1:2]
scores_2 = steps.scores_by_loop(query, inputs)[0]
show(scores_2)
%% text
Weights should add up to 1. Dividing by the sum does that; softmax does it better, as it takes negative scores too.
%% code
show(steps.normalise_by_sum(scores_2))
show(steps.softmax_naive(scores_2))
show(steps.softmax(scores_2))
%% text
The naive formula overflows where scores are large; subtracting the largest first changes nothing else.
%% code
large = np.array([1000.0, 1001.0], np.float32)
show(steps.softmax_naive(large))
show(steps.softmax(large))
%% text
The **context vector** is the sum of all words, each by its weight.
%% code
show(steps.weighted_sum(steps.softmax(scores_2)[None], inputs)[0])
%% text
For all words at once, three lines:
%% code
scores = steps.scores(inputs, inputs)
weights = steps.softmax(scores)
show(weights)
show(steps.weighted_sum(weights, inputs))
%% text
Which is what the module does:
%% code
show(attn.SimplifiedSelfAttention()(inputs))
%% text
The weights as a picture: each row is one word, and shows how much of every other word goes into its context.
%% code
attn.plot(attn.SimplifiedSelfAttention(), inputs, tokens=words)
%% text
And the contexts, hollow, beside the words. All of them move towards the middle of what they look at.
%% code
attn.plot(attn.SimplifiedSelfAttention(), inputs, figure="space", tokens=words)
%% text
## 2. Weights that can be trained

Queries, keys and values are three projections of the inputs. The scores are divided by √d, so that softmax does not
become a step where vectors are long.
%% code
attn.manual_seed(123)
W_query, W_key, W_value = attn.rand(3, 2), attn.rand(3, 2), attn.rand(3, 2)
queries, keys, values = inputs @ W_query, inputs @ W_key, inputs @ W_value
show(queries[1])
attention_scores = steps.scores(queries[1:2], keys)
attention_weights = steps.softmax(attention_scores / np.sqrt(np.float32(2)))
show(attention_weights[0])
show(steps.weighted_sum(attention_weights, values)[0])
%% code
attn.manual_seed(123)
sa_v1 = attn.SelfAttention_v1(d_in=3, d_out=2)
show(sa_v1(inputs))
%% text
With `nn.Linear`'s initial weights:
%% code
attn.manual_seed(789)
sa_v2 = attn.SelfAttention_v2(d_in=3, d_out=2)
show(sa_v2(inputs))
%% text
Five other words, with every key and value:
%% code
attn.manual_seed(123)
five = np.vstack([inputs[:4], np.array([[0.02, 0.81, 0.52]], np.float32)])
v1 = attn.SelfAttention_v1(3, 2)
seen = v1.steps(five)
show(seen["keys"])
show(seen["values"])
show(v1(five))
%% text
## 3. Averages of the past

A word may look back, not ahead. The plainest way is the mean of all words so far, by a triangular matrix.
%% code
attn.manual_seed(42)
a = np.tril(np.ones((3, 3), np.float32))
b = attn.randint(0, 10, (3, 2)).astype(np.float32)
show(b)
show(steps.matmul(a, b))
show(steps.matmul(steps.normalise_by_sum(a), b))
%% text
The same weights come out of softmax, where the future has the score -∞:
%% code
past = np.tril(np.ones((4, 4), bool))
show(steps.softmax(steps.mask_fill(np.zeros((4, 4), np.float32), past)))
%% code
attn.manual_seed(1337)
x = attn.randn(4, 8, 2)
show(attn.AveragePast()(x)[0])
%% text
A head whose weights depend on the words:
%% code
attn.manual_seed(1337)
x = attn.randn(4, 8, 32)
head = attn.SelfAttentionHead(32, 16)
show(head.steps(x)["weights"][0])
%% text
## 4. Causal attention

Two ways to hide the future give the same weights: zeros and a new division by the sum, or -∞ before softmax.
%% code
weights = sa_v2.steps(inputs)["weights"]
past = np.tril(np.ones((6, 6), bool))
show(steps.mask_zero(weights, past))
show(steps.mask_renormalise(weights, past))
show(steps.softmax(steps.mask_fill(sa_v2.steps(inputs)["scores"], past) / np.sqrt(np.float32(2))))
%% text
**Dropout** hides some weights in training, and scales up the rest. PyTorch draws it differently on different machines;
both ways are here, by name.
%% code
ones = np.ones((6, 6), np.float32)
for flavour in ("mkl", "native"):
    keep = attn.Generator(123, dropout=flavour).dropout_keep((6, 6), 0.5)
    show(steps.dropout(ones, keep, 0.5))
%% text
Two texts at once, and the module of it all:
%% code
batch = np.stack([inputs, inputs])
attn.manual_seed(123)
ca = attn.CausalAttention(d_in=3, d_out=2, context_length=6, dropout=0.0)
context_vecs = ca(batch)
show(context_vecs)
print("context_vecs.shape:", context_vecs.shape)
%% text
## 5. Many heads
%% code
attn.manual_seed(123)
mha = attn.MultiHeadAttentionWrapper(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
show(mha(batch))
%% text
All heads at once, by splitting one projection:
%% code
attn.manual_seed(123)
mha = attn.MultiHeadAttention(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
context_vecs = mha(batch)
show(context_vecs)
print("context_vecs.shape:", context_vecs.shape)
%% text
What each head looks at. The weights are random, so the rows are almost even; hatched is masked.
%% code
attn.plot(mha, inputs, tokens=words)
%% text
It can be trained: gradients of every weight, by hand or by PyTorch (`attn.torch`).
%% code
target = attn.Generator(0).randn(2, 6, 2)
for step in range(101):
    difference = mha(batch) - target
    if step % 50 == 0:
        print(f"step {step:3d}  loss {np.mean(difference**2):.3f}")
    mha.zero_grad()
    mha.backward(2 * difference / difference.size)
    for parameter in mha.parameters():
        parameter.value -= 0.5 * parameter.grad
%% text
## 6. The operator

Behind all of these is one function, with PyTorch's signature. It never holds the scores, so long inputs fit.
%% code
q = attn.Generator(1).randn(1, 8, 4096, 64)
out, lse = attn.scaled_dot_product_attention(q, q, q, is_causal=True, return_lse=True)
print(out.shape, lse.shape)
%% text
`attn.report` shows every step of a module, in a page to look at: as the last line of a cell it is displayed here;
`save` writes it to a file.
%% code
report = attn.report(mha, inputs, tokens=words, title="Your journey starts with one step")
report.save("attention-report.html")
print(len(str(report)) // 1000, "kB")
'''


def build() -> nbformat.NotebookNode:
    cells = []
    for text in CELLS.strip().split("%% ")[1:]:
        kind, _, source = text.strip().partition("\n")
        cells.append((new_code_cell if kind == "code" else new_markdown_cell)(source))
        cells[-1]["id"] = f"cell-{len(cells)}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def execute(notebook: nbformat.NotebookNode, folder: pathlib.Path) -> nbformat.NotebookNode:
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=120, record_timing=False, resources=resources)
    client.execute()
    notebook.metadata.pop("language_info", None)  # the Python version is the machine's
    return notebook


def pictures(notebook: nbformat.NotebookNode) -> list[str]:
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    return [o["data"]["image/svg+xml"] for c in cells for o in c.outputs if "image/svg+xml" in o.get("data", {})]


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    return ["".join(o.get("text", "") for o in c.get("outputs", [])) for c in notebook.cells if c.cell_type == "code"]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        fresh = execute(build(), pathlib.Path(folder))
    if "--check" in sys.argv:
        sys.exit(outputs(fresh) != outputs(nbformat.read(PATH, as_version=4)))
    nbformat.write(fresh, PATH)
