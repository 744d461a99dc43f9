// Our side of the comparison with torch.distributed.checkpoint: holds the state and obeys lines of standard input.
//   checkpoint_side LAYERS ROOT
//   save STEP        saves the state as one rank        -> seconds
//   shards STEP      the same as two ranks, not timed   -> "ok"
//   load STEP        reads all of it as one rank        -> seconds
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/checkpoint/state.h"

int main(int argc, char** argv) {
  using namespace trainyard;  // NOLINT: a program of one page
  if (argc != 3) bench::Die("usage: checkpoint_side LAYERS ROOT");
  const int64_t layers = std::stoll(argv[1]);
  const std::string root = argv[2];
  bench::Own(root);
  std::vector<bench::Shards> one, two;
  one.emplace_back(layers, 0, 1);
  std::cout << "ready " << one[0].bytes << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int64_t step = 0;
    words >> command >> step;
    if (command == "save") {
      std::cout << bench::Seconds([&] { bench::Save(root, step, one); }) << std::endl;
    } else if (command == "shards") {
      for (int rank = 0; rank < 2; ++rank) two.emplace_back(layers, rank, 2);
      bench::Save(root, step, two);
      two.clear();
      std::cout << "ok" << std::endl;
    } else if (command == "load") {
      const std::string path = root + "/" + checkpoint::StepDirectory(step);
      std::cout << bench::Seconds([&] { bench::Load(path, one[0]); }) << std::endl;
    } else {
      bench::Die("unknown command: " + line);
    }
  }
  return 0;
}
