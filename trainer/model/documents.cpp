#include "trainer/model/documents.h"

namespace trainyard::model {

Documents FindDocuments(const at::Tensor& tokens, int64_t separator) {
  const at::Tensor host = tokens.to(at::kCPU).contiguous();
  const int64_t rows = host.size(0), length = host.size(1);
  const int64_t* token = host.const_data_ptr<int64_t>();
  Documents documents;
  at::Tensor positions = at::empty({rows, length}, at::kLong);
  int64_t* position = positions.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    int64_t begin = 0;
    for (int64_t t = 0; t < length; ++t) {
      position[row * length + t] = t - begin;
      if (token[row * length + t] != separator && t + 1 != length) continue;
      documents.lengths.push_back(t + 1 - begin);
      begin = t + 1;
    }
  }
  if (static_cast<int64_t>(documents.lengths.size()) == rows) return {};
  documents.positions = positions.to(tokens.device());
  return documents;
}

}  // namespace trainyard::model
