// Step 04's kernels, stopped early, continued, or broken: what its tests run beside the step's own variants.
#pragma once

#include "common/run/family/attention.h"

namespace faulty {

// The blocks of keys of `scalar_48k` for this head dim, in fp32.
int block_keys(int dim);

// Algorithm 1 after its first `keys` keys: O and LSE over those.
run::AttentionVariant stopped_after(int keys);

// The same, and then the rest of the keys, by a second launch that finds O, l and m where the first has left them.
run::AttentionVariant stopped_and_continued(int keys);

// Line 12 without the factor e^(m − m_new) on the O of the keys before.
run::AttentionVariant without_rescale();

// Only ⌊N / Bc⌋ blocks of keys.
run::AttentionVariant whole_blocks_only();

// The last block of keys left out, full or not.
run::AttentionVariant without_last_block();

}  // namespace faulty
