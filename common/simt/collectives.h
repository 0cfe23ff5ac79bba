// What lanes do together, for those files that define such calls.
#pragma once

#include "common/simt/engine.h"

namespace simt {

// The running lane. Warp calls, barriers and copies mean nothing in host code: there it throws.
Lane& lane_or_die();

// Waits until all lanes of the mask have made the same call.
void meet(WarpCall& call);

}  // namespace simt
