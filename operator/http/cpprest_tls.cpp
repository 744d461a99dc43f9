#include "operator/http/cpprest_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <optional>
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

// Where OpenSSL would look for the system's authorities, before LoadSystemAuthoritiesOnce() pointed it at nothing.
struct SystemPaths {
  std::string file, directory;
};
std::optional<SystemPaths>& KeptPaths() {
  static std::optional<SystemPaths> paths;
  return paths;
}

// Shared by all contexts: a store locks itself.
X509_STORE* SystemAuthorities(const SystemPaths& paths) {
  static X509_STORE* const store = [&] {
    X509_STORE* made = X509_STORE_new();
    // What is not there trusts nobody, as it does in OpenSSL.
    X509_STORE_load_file(made, paths.file.c_str());
    X509_STORE_load_path(made, paths.directory.c_str());
    return made;
  }();
  return store;
}

}  // namespace

void LoadSystemAuthoritiesOnce() {
  if (KeptPaths()) return;
  const auto point_at_nothing = [](const char* variable, const char* fallback) {
    const char* given = std::getenv(variable);
    const std::string kept = given != nullptr ? given : fallback;
    setenv(variable, "/dev/null", 1);
    return kept;
  };
  SystemPaths paths;
  paths.file = point_at_nothing(X509_get_default_cert_file_env(), X509_get_default_cert_file());
  paths.directory = point_at_nothing(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());
  KeptPaths() = std::move(paths);
}

void CpprestTls::Configure(boost::asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  // The library has loaded the system's authorities by now; a cluster's authority must be the only one.
  if (!options_.ca_pem.empty() || !options_.ca_file.empty()) {
    SSL_CTX_set_cert_store(context.native_handle(), X509_STORE_new());
  } else if (KeptPaths()) {
    SSL_CTX_set1_cert_store(context.native_handle(), SystemAuthorities(*KeptPaths()));
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
