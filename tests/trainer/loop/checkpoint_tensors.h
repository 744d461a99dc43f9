// All of a checkpoint's tensors, whole, for comparing bytes. Thread-safety: a function of its arguments.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/reader.h"

namespace trainyard::loop {

using Tensors = std::map<std::string, std::string>;  // group/name -> bytes

inline Tensors ReadTensors(const std::string& root, int64_t step) {
  Tensors tensors;
  auto reader = checkpoint::Reader::Open(root + "/" + checkpoint::StepDirectory(step));
  EXPECT_TRUE(reader) << reader.error().message;
  if (!reader) return tensors;
  for (const auto& info : reader->tensors()) {
    std::string& bytes = tensors[info.group + "/" + info.name];
    bytes.resize(
        static_cast<size_t>(*checkpoint::ElementCount(info.global_shape) * *checkpoint::DtypeBytes(info.dtype)));
    const std::vector<int64_t> origin(info.global_shape.size(), 0);
    const auto read =
        reader->Read({{info.name, info.dtype, info.global_shape, origin, info.global_shape, bytes.data()}});
    EXPECT_TRUE(read) << read.error().message;
  }
  return tensors;
}

}  // namespace trainyard::loop
