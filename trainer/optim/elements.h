// What the element-wise updates share. Private to the room. Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace trainyard::optim {

constexpr int64_t kGrain = 1 << 15;  // elements per thread that are worth a thread

// Throws c10::Error unless every tensor is contiguous and has the number of elements and the type of `param`, float or
// double.
inline void CheckAlike(const char* who, const at::Tensor& param, std::initializer_list<at::Tensor> others) {
  TORCH_CHECK(param.scalar_type() == at::kFloat || param.scalar_type() == at::kDouble, who,
              ": parameters must be float or double");
  TORCH_CHECK(param.is_contiguous(), who, ": tensors must be contiguous");
  for (const at::Tensor& other : others) {
    TORCH_CHECK(other.is_contiguous(), who, ": tensors must be contiguous");
    TORCH_CHECK(other.numel() == param.numel() && other.scalar_type() == param.scalar_type(), who,
                ": sizes or types differ");
  }
}

}  // namespace trainyard::optim
