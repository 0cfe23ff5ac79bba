"""What step 02 does on the tour: the product that makes Q, K and V."""

from dataclasses import replace

from tools.measure.layers import Stop

LONG = ("element_per_thread", "shared_tile")
COLUMNS_OF_PART = 288  # a quarter


def first_columns(stop):
    """The same stop on the first columns of its product."""
    some = slice(COLUMNS_OF_PART)
    inputs, truth = {**stop.inputs, "b": stop.inputs["b"][some]}, {"c": stop.truth["c"][:, some]}
    return replace(stop, inputs=inputs, truth=truth, part=f"{COLUMNS_OF_PART} of {len(stop.inputs['b'])} columns")


def stops(step, layer):
    product = {"a": layer.x, "b": layer.weight}
    what, truth = "the product that makes Q, K and V", {"c": layer.product}
    return [Stop(step, what, product, ["--dtype", "fp16"], truth, "fp16", long=LONG, shorter=first_columns)]
