// Step 06: rows of any length at any address, for compute capability 9.0.
#include "steps/06_backward/any_dim.h"
#include "steps/06_backward/launches.h"

namespace backward {

Rung any_dim() { return {launch_any_dim<true>, any_dim_bytes<true>, "convert_padded"}; }

}  // namespace backward
