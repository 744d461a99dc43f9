// Reference arrays of a safetensors file under tests/golden.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

namespace trainyard::testing {

// `file`: below tests/golden. Throws std::runtime_error when it cannot be read.
inline std::map<std::string, at::Tensor> ReadArrays(const std::string& file) {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/" + file, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  const std::string bytes = content.str();
  uint64_t length = 0;
  if (bytes.size() < sizeof length) throw std::runtime_error(file + " cannot be read");
  std::memcpy(&length, bytes.data(), sizeof length);
  const char* const data = bytes.data() + sizeof length + length;
  const std::map<std::string, at::ScalarType> types{
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"U8", at::kByte}, {"I16", at::kShort}};
  std::map<std::string, at::Tensor> arrays;
  const nlohmann::json header = nlohmann::json::parse(bytes.data() + sizeof length, data);
  for (const auto& [key, entry] : header.items()) {
    const at::Tensor t = at::empty(entry["shape"].get<std::vector<int64_t>>(), types.at(entry["dtype"]));
    std::memcpy(t.mutable_data_ptr(), data + entry["data_offsets"][0].get<int64_t>(), t.nbytes());
    arrays[key] = t;
  }
  return arrays;
}

}  // namespace trainyard::testing
