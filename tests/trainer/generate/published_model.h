// The small models of tests/golden/models as Hugging Face directories. Thread-safety: free functions.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "operator/base/files.h"
#include "tests/trainer/model/golden.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::generate {

// Writes config.json and model.safetensors, in `type`, kFloat or kBFloat16.
inline void WritePublished(const model::Golden& golden, const std::string& directory,
                           at::ScalarType type = at::kFloat) {
  const auto check = [](const auto& done) {
    if (!done) throw std::runtime_error(done.error().message);
  };
  std::vector<checkpoint::SafetensorsTensor> list;
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : golden.tensors) {
    if (!name.starts_with("p.")) continue;
    list.push_back({name.substr(2), type == at::kFloat ? "F32" : "BF16", tensor.sizes().vec(), {}});
    values.push_back(tensor.to(at::kFloat).div_(64).to(type).contiguous());  // 64ths of one byte: exact in both
  }
  check(MakeDirectories(directory));
  check(WriteFileAtomically(directory + "/config.json", golden.config.dump()));
  auto writer = checkpoint::SafetensorsWriter::Create(directory + "/model.safetensors", list, false,
                                                      checkpoint::PosixFileSystem());
  check(writer);
  for (const at::Tensor& t : values) check(writer->Append(t.const_data_ptr(), static_cast<int64_t>(t.nbytes())));
  check(writer->Finish());
}

}  // namespace trainyard::generate
