// main() of every step of row softmaxes: its step.cu defines this_softmax_step().
#include "common/run/softmax_main.h"

int main(int argc, char** argv) { return run::softmax_main(argc, argv, run::this_softmax_step()); }
