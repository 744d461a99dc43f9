// One TLS connection from the proxy to the real API server, with the client certificate of the test's kubeconfig.
// Thread-safety: one thread, but Cut() from any.
#pragma once

#include <memory>
#include <string>

#include "operator/base/error.h"
#include "operator/kube/config.h"

namespace trainyard::faults {

class Upstream {
 public:
  // Errors: kInvalidArgument for a server that is not "https://IP:PORT" or bad certificates, kUnavailable.
  static Result<std::unique_ptr<Upstream>> Connect(const kube::Config& config);
  ~Upstream();
  bool Write(const std::string& bytes);
  size_t Read(char* at, size_t size);  // 0: the end, or an error
  bool Pending() const;                // bytes are there that no poll() of fd() shows
  int fd() const { return fd_; }
  void Cut();

 private:
  struct Tls;
  Upstream(int fd, std::unique_ptr<Tls> tls);
  const int fd_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace trainyard::faults
