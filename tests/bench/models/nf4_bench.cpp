// What a frozen matrix in NF4 costs in time: its products and their gradients against the same in BF16, and its
// unpacking alone.
//   nf4_bench [--json FILE] [--pairs N] [--width N] [--threads N]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "trainer/model/linear.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

at::Tensor Numbers(int64_t rows, int64_t columns, uint64_t seed) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(seed), at::dtype(at::kFloat)).to(at::kBFloat16);
}

double Milliseconds(const std::function<void()>& fn) {
  const auto begin = Clock::now();
  fn();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bench::Row Against(const std::string& name, int pairs, const std::function<void()>& packed,
                   const std::function<void()>& plain) {
  packed(), plain();  // libraries choose their kernels at the first call
  std::vector<double> measured, base;
  for (int i = 0; i < pairs; ++i) {
    measured.push_back(Milliseconds(packed));
    base.push_back(Milliseconds(plain));
  }
  return bench::FromPairs(name, "ms", measured, "bf16", base, "lower", 0);
}

int Main(int argc, char** argv) {
  std::string json;
  int pairs = 9, threads = at::get_num_threads();
  int64_t width = 4096;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(5, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--width") == 0) width = std::max(64, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::max(1, std::atoi(argv[i + 1]));
  }
  at::set_num_threads(threads);
  at::NoGradGuard no_grad;
  model::Linear plain, packed;
  plain.weight = Numbers(width, width, 1);
  packed.weight = quant::Nf4Quantise(plain.weight);
  packed.form.packed_row = width;
  std::vector<bench::Row> rows;
  for (const int64_t tokens : {1, 128, 2048}) {
    const at::Tensor x = Numbers(tokens, width, 2);
    rows.push_back(Against(
        "nf4_matmul_" + std::to_string(tokens) + "_tokens", pairs, [&] { model::Product(packed, x); },
        [&] { model::Product(plain, x); }));
  }
  const at::Tensor x = Numbers(2048, width, 2), g = Numbers(2048, width, 3);
  const auto gradient = [&](const model::Linear& linear) { model::GradientsOf(linear, x, g, {.x = true}); };
  rows.push_back(
      Against("nf4_matmul_gradient_2048_tokens", pairs, [&] { gradient(packed); }, [&] { gradient(plain); }));
  const at::Tensor from = plain.weight.clone();
  rows.push_back(Against(
      "nf4_unpack", pairs, [&] { quant::Nf4Dequantise(packed.weight, width, at::kBFloat16); }, [&] { from.clone(); }));
  rows.back().baseline = "copy_of_bf16";
  std::printf("a matrix of %ld x %ld, %d threads, %d pairs\n", static_cast<long>(width), static_cast<long>(width),
              threads, pairs);
  bench::PrintTable(rows);
  return json.empty() || bench::WriteJson(json, rows, /*keep_others=*/true) ? 0 : 1;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
