#include "operator/http/cpprest_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

#include "operator/base/files.h"

namespace trainyard::http {
namespace {

// The text itself, or that of the file; neither: empty.
Result<std::string> Pem(const std::string& pem, const std::string& file) {
  if (!pem.empty() || file.empty()) return pem;
  return ReadFile(file);
}

std::string Source(const std::string& pem, const std::string& file) {
  return pem.empty() ? "'" + file + "'" : "given as text";
}

}  // namespace

void CpprestTls::Configure(boost::asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  // The library has loaded the system's authorities by now; a cluster's authority must be the only one.
  if (!options_.ca_pem.empty() || !options_.ca_file.empty()) {
    SSL_CTX_set_cert_store(context.native_handle(), X509_STORE_new());
  }
  const Status loaded = Load(context);
  if (!loaded) SSL_CTX_set_cert_store(context.native_handle(), X509_STORE_new());
  ERR_clear_error();  // of this thread; leftovers would be blamed on the next connection
  std::lock_guard lock(mutex_);
  problem_ = loaded ? std::string() : loaded.error().message;
}

Status CpprestTls::Load(boost::asio::ssl::context& context) const {
  boost::system::error_code error;
  const Result<std::string> authority = Pem(options_.ca_pem, options_.ca_file);
  if (!authority) return Fail(authority.error().Wrap("certificate authority"));
  if (!authority->empty()) {
    context.add_certificate_authority(boost::asio::buffer(*authority), error);
    if (error) {
      return Fail(ErrorCode::kInvalidArgument,
                  "certificate authority " + Source(options_.ca_pem, options_.ca_file) + " is not a PEM certificate");
    }
  }
  const Result<std::string> certificate = Pem(options_.client_certificate_pem, options_.client_certificate_file);
  if (!certificate) return Fail(certificate.error().Wrap("client certificate"));
  const Result<std::string> key = Pem(options_.client_key_pem, options_.client_key_file);
  if (!key) return Fail(key.error().Wrap("client key"));
  if (certificate->empty() != key->empty()) {
    return Fail(ErrorCode::kInvalidArgument, "a client certificate needs its key, and a key its certificate");
  }
  if (certificate->empty()) return {};
  context.use_certificate_chain(boost::asio::buffer(*certificate), error);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument,
                "client certificate " + Source(options_.client_certificate_pem, options_.client_certificate_file) +
                    " is not a PEM certificate");
  }
  context.use_private_key(boost::asio::buffer(*key), boost::asio::ssl::context::pem, error);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument, "client key " + Source(options_.client_key_pem, options_.client_key_file) +
                                                 " is not the PEM key of the client certificate");
  }
  return {};
}

std::string CpprestTls::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace trainyard::http
