#include "trainer/dist/nccl_plugin.h"

#include "trainer/contract/plugin.h"

namespace trainyard::dist {

Result<std::unique_ptr<Comm>> OpenNccl(Comm& host, int device, std::chrono::milliseconds timeout) {
  std::string error;
  void* const entry = contract::PluginEntry(contract::kNcclPlugin, kNcclPluginEntry, error);
  if (entry == nullptr) return Fail(ErrorCode::kFailedPrecondition, "NCCL: " + error);
  const auto start = std::chrono::steady_clock::now();
  auto comm = reinterpret_cast<const NcclPlugin* (*)()>(entry)()->connect(host, device, timeout, error);
  if (comm != nullptr) return comm;
  const bool late = std::chrono::steady_clock::now() - start >= timeout;
  return Fail(late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable, "NCCL: " + error);
}

}  // namespace trainyard::dist
