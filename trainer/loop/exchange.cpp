#include "trainer/loop/exchange.h"

#include <cstring>

namespace trainyard::loop {
namespace {

constexpr int kTextTag = 77;

// Texts travel as int64, a type that every backend has.
at::Tensor Pack(const std::string& text) {
  at::Tensor words = at::zeros({static_cast<int64_t>(text.size() + 7) / 8}, at::kLong);
  if (!text.empty()) std::memcpy(words.mutable_data_ptr<int64_t>(), text.data(), text.size());
  return words;
}

std::string Unpack(const at::Tensor& words, int64_t bytes) {
  return std::string(reinterpret_cast<const char*>(words.const_data_ptr<int64_t>()), static_cast<size_t>(bytes));
}

}  // namespace

std::vector<std::string> GatherTexts(dist::Comm& comm, const std::string& text, const std::string& label,
                                     std::chrono::milliseconds deadline) {
  if (comm.size() == 1) return {text};
  const at::Tensor mine = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  const at::Tensor sizes = at::empty({comm.size()}, at::kLong);
  comm.AllGather(sizes, mine, {.deadline = deadline, .label = label})->Wait();
  if (comm.rank() != 0) {
    if (!text.empty()) comm.Send(Pack(text), 0, kTextTag, {.deadline = deadline, .label = label})->Wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int rank = 1; rank < comm.size(); ++rank) {
    const int64_t bytes = sizes.const_data_ptr<int64_t>()[rank];
    const at::Tensor words = at::empty({(bytes + 7) / 8}, at::kLong);
    if (bytes > 0) comm.Recv(words, rank, kTextTag, {.deadline = deadline, .label = label})->Wait();
    texts.push_back(Unpack(words, bytes));
  }
  return texts;
}

std::string BroadcastText(dist::Comm& comm, const std::string& text, const std::string& label,
                          std::chrono::milliseconds deadline) {
  if (comm.size() == 1) return text;
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  comm.Broadcast(size, 0, {.deadline = deadline, .label = label})->Wait();
  const int64_t bytes = size.item<int64_t>();
  at::Tensor words = comm.rank() == 0 ? Pack(text) : at::empty({(bytes + 7) / 8}, at::kLong);
  comm.Broadcast(words, 0, {.deadline = deadline, .label = label})->Wait();
  return Unpack(words, bytes);
}

void SumInOrder(dist::Comm& comm, std::vector<double>& values, const std::string& label,
                std::chrono::milliseconds deadline) {
  at::Tensor view = at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble);
  comm.AllReduce(view, dist::Reduce::kOrderedSum, {.deadline = deadline, .label = label})->Wait();
}

}  // namespace trainyard::loop
