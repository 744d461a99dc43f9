// Runs a fuzz target without libFuzzer: on every file of a corpus, then on random changes of them. A pass is quick
// enough for every test run, and the same for the same seed.
//   count_fuzz CORPUS [CHANGES]          CHANGES: 10,000 unless given
// TRAINYARD_SEED fixes the seed, which is printed. Where the target dies, PROGRAM.last is what it died of, and
// `PROGRAM PROGRAM.last` runs that again.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace trainyard::fuzz {
namespace {

constexpr size_t kMostBytes = 16 << 10;
// Texts that readers of numbers and structure trip over.
constexpr std::string_view kTokens[] = {"-1",
                                        "0",
                                        "1e18",
                                        "1e999",
                                        "9223372036854775808",
                                        "18446744073709551616",
                                        ".5",
                                        "-0.0",
                                        "NaN",
                                        ".inf",
                                        "null",
                                        "true",
                                        "[]",
                                        "{}",
                                        "\"\"",
                                        ": ",
                                        "- ",
                                        "\n",
                                        "\\u0000",
                                        "\xff",
                                        "K",
                                        "T",
                                        "0x10",
                                        "00",
                                        "&a *a",
                                        "!!int",
                                        "# ",
                                        "'"};

std::string Read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// What is under way, in memory that outlives the process that dies of it.
struct UnderWay {
  size_t size;
  char bytes[kMostBytes];
};

class Driver {
 public:
  Driver(UnderWay& under_way, unsigned seed) : under_way_(under_way), random_(seed) {}

  void Run(const std::string& input) {
    under_way_.size = std::min(input.size(), sizeof(under_way_.bytes));
    input.copy(under_way_.bytes, under_way_.size);
    // A copy of just its size, so that a sanitizer sees whoever reads beyond.
    const std::vector<uint8_t> bytes(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(under_way_.size));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }

  std::string Changed(const std::vector<std::string>& corpus) {
    std::string text = corpus[Below(corpus.size())];
    for (size_t changes = 1 + Below(4); changes > 0; --changes) Change(corpus, text);
    if (text.size() > kMostBytes) text.resize(kMostBytes);
    return text;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void Change(const std::vector<std::string>& corpus, std::string& text) {
    const size_t at = Below(text.size() + 1);
    const size_t length = Below(std::min<size_t>(text.size() - at, 32) + 1);
    switch (Below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        return;
      case 1:
        text.erase(at, length);
        return;
      case 2:
        text.insert(at, text.substr(at, length));
        return;
      case 3:
        text.insert(at, kTokens[Below(std::size(kTokens))]);
        return;
      case 4:
        ReplaceNumber(at, text);
        return;
      case 5: {
        const std::string& other = corpus[Below(corpus.size())];
        const size_t from = Below(other.size() + 1);
        text = text.substr(0, at) + other.substr(from);
        return;
      }
      default:
        text.insert(at, 1, static_cast<char>(random_()));
    }
  }

  // The first number from `at` on becomes another one: what readers check most is numbers.
  void ReplaceNumber(size_t at, std::string& text) {
    const size_t begin = text.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const std::string other = Below(2) == 0 ? std::string(kTokens[Below(12)]) : std::to_string(random_() >> Below(64));
    text.replace(begin, end - begin, other);
  }

  UnderWay& under_way_;
  std::mt19937_64 random_;
};

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s CORPUS [CHANGES]\n", argv[0]);
    return 2;
  }
  const char* fixed = std::getenv("TRAINYARD_SEED");
  const unsigned seed = fixed != nullptr ? static_cast<unsigned>(std::atoll(fixed)) : std::random_device{}();
  std::vector<std::filesystem::path> paths;
  const bool directory = std::filesystem::is_directory(argv[1]);
  const long changes = !directory ? 0 : argc == 3 ? std::atol(argv[2]) : 10'000;
  if (directory) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  } else {
    paths.push_back(argv[1]);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) corpus.push_back(Read(path));
  if (corpus.empty() || std::all_of(corpus.begin(), corpus.end(), [](const auto& c) { return c.empty(); })) {
    std::fprintf(stderr, "%s: no corpus\n", argv[1]);
    return 2;
  }
  std::printf("seed %u (TRAINYARD_SEED=%u runs the same changes)\n", seed, seed);
  std::fflush(stdout);
  void* shared = mmap(nullptr, sizeof(UnderWay), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  UnderWay& under_way = *static_cast<UnderWay*>(shared);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 2;
  }
  if (child == 0) {
    Driver driver(under_way, seed);
    for (const std::string& input : corpus) driver.Run(input);
    for (long i = 0; i < changes; ++i) driver.Run(driver.Changed(corpus));
    return 0;
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    const std::string last = std::string(argv[0]) + ".last";
    std::ofstream(last, std::ios::binary) << std::string_view(under_way.bytes, under_way.size);
    std::fprintf(stderr, "%s: what it died of is in %s\n", argv[0], last.c_str());
    return 1;
  }
  std::printf("%zu files, %ld changes: no promise broken\n", corpus.size(), changes);
  return 0;
}

}  // namespace
}  // namespace trainyard::fuzz

int main(int argc, char** argv) { return trainyard::fuzz::Main(argc, argv); }
