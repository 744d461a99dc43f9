// Keys and values of the tokens that a model has seen, so that the next one costs its own products alone. Room for all
// of them is taken when the first come, once, in the type and on the device of the model; key heads that queries share
// are kept once. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace trainyard::model {

class KeyValueCache {
 public:
  // Of at most `capacity` tokens a row.
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  // Tokens a row that all layers have seen.
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  int64_t bytes() const;

  struct View {
    at::Tensor keys, values;  // [b, length() + s, heads, d], not contiguous
  };
  // Keys, with their positions, and values of the `s` tokens after length(): [b, s, heads, d] each. Returns those of
  // all tokens. Error: std::invalid_argument for more than there is room for, or other rows than before.
  View Append(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  // Every layer has seen `s` tokens more.
  void Advance(int64_t s) { length_ += s; }

 private:
  const int64_t capacity_;
  int64_t length_ = 0;
  std::vector<View> layers_;  // [b, heads, capacity, d]: what a head reads lies together
};

}  // namespace trainyard::model
