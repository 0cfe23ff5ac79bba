// Matrix products with one mistake each (faulty_products.cu); the first has none.
#pragma once

#include <vector>

#include "common/run/family/gemm.h"

namespace faulty {

std::vector<run::GemmVariant> products();  // named after the mistake

}  // namespace faulty
