"""Which probabilities dropout leaves out: the mask of steps 05 and 06, in NumPy. common/device/dropout.h says what it is, and why."""

import numpy as np

LOW = np.uint64(0xFFFFFFFF)


def share_of_256(probability):
    """n, for the share n/256 that comes closest. ValueError for what cannot be served."""
    if not 0 <= probability < 1:
        raise ValueError(f"dropout is a probability, 0 or more and less than 1, not {probability}")
    n = round(256 * probability)
    if probability > 0 and not 0 < n < 256:
        raise ValueError(f"dropout {probability} rounds to {n} of 256; 1 to 255 can be left out, or none (0)")
    return n


def philox(counter, key, rounds=7):
    """Philox 4×32: four words for each counter; all are uint64 arrays of numbers below 2³². `key`: two numbers."""
    c, (k0, k1) = counter, key
    for _ in range(rounds):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & LOW, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def kept(heads, tokens, of_256, seed):
    """[1, heads, tokens, tokens]: whether a pair of a query and a key is kept. Of batch entry 0; 0 ≤ seed < 2⁶⁴."""
    blocks = -(-tokens // 32)
    shape = (heads, blocks, 8, blocks, 8)  # a call for each remainder by 8 of the queries, and of the keys, of 32 × 32 pairs
    head, block_q, rest_q, block_k, rest_k = np.indices(shape, np.uint64, sparse=True)
    counter = 32 * block_q + rest_q, 32 * block_k + rest_k, head, np.uint64(0)
    words = np.stack([np.broadcast_to(word, shape) for word in philox(counter, (seed % 2**32, seed >> 32))])
    as_bytes = words.astype("<u4")[..., None].view(np.uint8)  # [word, *shape, byte]
    # The word is (query / 8) % 4, the byte (key / 8) % 4.
    pairs = as_bytes.transpose(1, 2, 0, 3, 4, 6, 5).reshape(1, heads, 32 * blocks, 32 * blocks)
    return pairs[:, :, :tokens, :tokens] >= of_256
