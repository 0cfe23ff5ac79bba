// Calls `count_bytes` with N words and compares: check N
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int n = std::atoi(argv[1]);
  std::vector<unsigned> words(n);
  std::vector<int> counts(256, -1), right(256);
  for (int i = 0; i < n; ++i) words[i] = unsigned(i) * 2654435761u;
  for (const unsigned word : words) {
    for (int byte = 0; byte < 4; ++byte) ++right[word >> (8 * byte) & 255];
  }
  count_bytes(n, words.data(), counts.data());
  for (int value = 0; value < 256; ++value) {
    if (counts[value] == right[value]) continue;
    std::printf("among %d words, value %d occurs %d times; counted were %d\n", n, value, right[value], counts[value]);
    return 1;
  }
}
