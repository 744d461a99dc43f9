// What reading ahead costs and saves: steps of matrix products that take their micro-batches from the background
// reader, against the same steps that read at once. One thread computes, as a rank of a shared machine does.
//   data_bench [--json FILE] [--pairs N] [--steps N]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "trainer/data/background_reader.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  const char* name;
  int64_t rows, length, products;
};
// Short steps, where a handshake between threads would show most, and long rows, where reading itself does.
constexpr Shape kShapes[] = {{"4x128_tokens", 4, 128, 2}, {"8x4096_tokens", 8, 4096, 8}};

struct Times {
  double step = 0, wait = 0;  // seconds of one step
};

Times Run(int steps, int64_t products, const std::function<data::Batch(int64_t)>& next) {
  const at::Tensor a = at::ones({256, 256}), b = at::ones({256, 256});
  Times times;
  int64_t sum = 0;
  const auto begin = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const auto asked = Clock::now();
    const data::Batch batch = next(step);
    times.wait += std::chrono::duration<double>(Clock::now() - asked).count();
    sum += batch.tokens.const_data_ptr<int64_t>()[0];
    for (int64_t i = 0; i < products; ++i) sum += at::mm(a, b).const_data_ptr<float>()[0] > 0 ? 1 : 0;
  }
  times.step = std::chrono::duration<double>(Clock::now() - begin).count() / steps;
  times.wait /= steps;
  if (sum < 0) std::abort();  // it is used
  return times;
}

int Main(int argc, char** argv) {
  std::string json;
  int pairs = 11, steps = 200;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(5, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--steps") == 0) steps = std::max(10, std::atoi(argv[i + 1]));
  }
  at::set_num_threads(1);
  std::string path = std::filesystem::temp_directory_path() / "trainyard-data-bench-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return 1;
  close(fd);
  {
    std::ofstream text(path, std::ios::binary);
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) text << block;
  }
  auto source = data::TokenSource::Open(data::Format::kText, {path}, 256);
  unlink(path.c_str());  // stays mapped
  if (!source) {
    std::fprintf(stderr, "data_bench: %s\n", source.error().message.c_str());
    return 1;
  }
  std::vector<bench::Row> rows;
  for (const Shape& shape : kShapes) {
    const auto reader = data::BatchReader::Make(**source, {shape.length, data::Order::kShuffled, 1, {}}).value();
    std::vector<double> ahead, direct, ahead_wait, direct_wait;
    for (int pair = 0; pair <= pairs; ++pair) {
      data::BackgroundReader::Options options;
      options.global_batch = shape.rows;
      options.plan = data::PlanStep(shape.rows, shape.rows, 1, 0);
      options.end = shape.rows * steps;
      data::BackgroundReader feed(reader, options);
      const Times a = Run(steps, shape.products, [&](int64_t step) { return feed.Next(step * shape.rows, 0).value(); });
      const Times d =
          Run(steps, shape.products, [&](int64_t step) { return reader.Load(step * shape.rows, shape.rows).value(); });
      if (pair == 0) continue;  // warm-up
      ahead.push_back(a.step * 1e6), direct.push_back(d.step * 1e6);
      ahead_wait.push_back(a.wait * 1e6), direct_wait.push_back(d.wait * 1e6);
    }
    rows.push_back(
        bench::FromPairs("data_step_" + std::string(shape.name), "us", ahead, "read_at_once", direct, "lower", 1.02));
    rows.push_back(bench::FromPairs("data_wait_" + std::string(shape.name), "us", ahead_wait, "read_at_once",
                                    direct_wait, "lower", 1.0));
  }
  bench::PrintTable(rows);
  if (!json.empty() && !bench::WriteJson(json, rows)) {
    std::fprintf(stderr, "data_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
