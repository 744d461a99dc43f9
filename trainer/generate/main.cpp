// trainyard-generate: makes text with a model. `trainyard generate` starts it.
#include <csignal>
#include <iostream>

#include "trainer/generate/run.h"

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] != '{') {
    std::cerr << "Usage: trainyard-generate REQUEST\nMakes text; 'trainyard generate' writes the request.\n";
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is a failed write
  return trainyard::generate::Run(argv[1]);
}
