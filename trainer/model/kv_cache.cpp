#include "trainer/model/kv_cache.h"

#include <stdexcept>
#include <string>

namespace trainyard::model {

int64_t KeyValueCache::bytes() const {
  int64_t bytes = 0;
  for (const View& layer : layers_) {
    if (layer.keys.defined()) bytes += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
  }
  return bytes;
}

KeyValueCache::View KeyValueCache::Append(int64_t layer, const at::Tensor& keys, const at::Tensor& values) {
  const int64_t b = keys.size(0), s = keys.size(1), heads = keys.size(2), d = keys.size(3);
  if (length_ + s > capacity_) {
    throw std::invalid_argument("key-value cache: " + std::to_string(length_ + s) + " tokens are more than its " +
                                std::to_string(capacity_));
  }
  if (layer >= static_cast<int64_t>(layers_.size())) layers_.resize(static_cast<size_t>(layer) + 1);
  View& kept = layers_[static_cast<size_t>(layer)];
  if (!kept.keys.defined()) {
    kept = {at::empty({b, heads, capacity_, d}, keys.options()), at::empty({b, heads, capacity_, d}, values.options())};
  }
  if (kept.keys.size(0) != b) throw std::invalid_argument("key-value cache: other rows than before");
  const auto with = [&](const at::Tensor& all, const at::Tensor& fresh) {
    all.narrow(2, length_, s).copy_(fresh.transpose(1, 2));
    return all.narrow(2, 0, length_ + s).transpose(1, 2);
  };
  return {with(kept.keys, keys), with(kept.values, values)};
}

}  // namespace trainyard::model
