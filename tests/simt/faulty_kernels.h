// Kernels with one fault each, and their mended twins. The simulator must name the fault, its line and who did it.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace faulty {

struct Fault {
  std::string name;   // of the kernel's function, and of the comment that marks the faulty line in faulty_….cu
  std::string kind;   // what the finding must be called
  std::string names;  // what its text must contain: the allocation or member, or who waits where
  void (*run)();
  void (*mended)();
};

const std::vector<Fault>& faults();  // all of them
std::vector<Fault> faults_of_mbarriers();
std::vector<Fault> faults_of_bulk_copies();

// Kernels with a race on shared or device memory: two lines, marked "// one: NAME" and "// other:
// NAME", that nothing orders. Which of them comes second, and so gets the report, is up to the schedule; the report names both.
struct Race {
  std::string name;
  std::string member;  // of the shared struct, or the allocation
  void (*run)();       // the faulty kernel
  void (*mended)();    // its twin, with what was missing
};

const std::vector<Race>& races();  // all of them
std::vector<Race> races_of_mbarriers();
std::vector<Race> races_of_bulk_copies();

// Of both those whose blocks form clusters, in faulty_clusters.sm_90.cu.
const std::vector<Fault>& cluster_faults();
const std::vector<Race>& cluster_races();
void correct_clusters();
void count_in_clusters(unsigned blocks, unsigned cluster);  // what this correct one counts, its source says

// Of races those in chains of launches, in faulty_dependent.sm_90.cu.
const std::vector<Race>& dependent_races();
void correct_dependents();
// A launch, `between`, and a dependent launch that does not wait and reads what the first one stores.
void launches_that_have_ended(void (*between)());

void correct();  // a kernel without a fault that does all the things the faulty ones do
// What 64 threads read of copies of 1 for which they did not wait.
std::vector<float> seen_before_wait();
std::vector<float> seen_before_phase();  // and 32, whose copies arrive at an mbarrier
void two_faults();                       // two lines read out of bounds, each by many threads
void too_many_threads();                 // launches a block of 2048 threads
void too_much_shared();                  // asks for 300,000 bytes of shared memory

// Sums by atomics: of the threads' numbers (three, by number mod 3), of 2^33, and of 1.
struct Reds {
  std::array<unsigned, 3> sums;
  unsigned long long all;
  float floats;
  int beginnings;  // of threads: more than there are, if the launch ran again
};
Reds reds(int blocks, int threads, bool use_found);

// Kernels that differ from what was once counted: one launch each.
const std::map<std::string, void (*)()>& counted_kernels();

// Each block waits for the next one; it takes as many at once as there are.
void chain(int blocks, int threads, std::size_t shared_bytes = 0, std::size_t registers = 0, unsigned cluster = 1);
void spin_with_stores(int blocks);  // the first block waits for the second, if there is one, and stores while it does
void spin_with_tickets();           // the first block waits for the second
void all_spin(int blocks, int threads);
float restless();  // how far one thread counts while another one waits for its copy at an mbarrier: 2^20 at most
int beginnings_of_named_rounds(int rounds);  // of 256 threads: more, if the launch ran again
int beginnings_of_mbarrier_rounds(int rounds);
void print_and_count();  // three blocks print; the launch runs again, in order

std::vector<int> found();  // what one thread's atomics found, used in eight ways

// Each thread writes the order in which it ran, by an atomic counter: what the schedule was.
std::vector<int> schedule(int blocks, int threads);
// The same within one block, between two barriers, without atomics on global memory.
std::vector<int> block_schedule(int threads);

}  // namespace faulty
