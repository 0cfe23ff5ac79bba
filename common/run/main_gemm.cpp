// main() of every step of matrix products: its step.cu defines this_gemm_step().
#include "common/run/gemm_main.h"

int main(int argc, char** argv) { return run::gemm_main(argc, argv, run::this_gemm_step()); }
