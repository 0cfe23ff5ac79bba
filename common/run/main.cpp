// main() of every attention step: its step.cu defines this_step().
#include "common/run/attention_main.h"

int main(int argc, char** argv) { return run::attention_main(argc, argv, run::this_step()); }
