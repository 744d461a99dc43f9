#include "tests/cluster/faults/upstream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace trainyard::faults {
namespace {

using Context = std::shared_ptr<SSL_CTX>;

std::string TextOf(const std::string& pem, const std::string& file) {
  if (!pem.empty() || file.empty()) return pem;
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::unique_ptr<BIO, decltype(&BIO_free)> Memory(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

Result<Context> MakeContext(const http::TlsOptions& tls) {
  Context context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  // A BIO points into its text, which must outlive it.
  const std::string ca_text = TextOf(tls.ca_pem, tls.ca_file);
  const std::string certificate_text = TextOf(tls.client_certificate_pem, tls.client_certificate_file);
  const std::string key_text = TextOf(tls.client_key_pem, tls.client_key_file);
  const auto ca_bio = Memory(ca_text);
  const auto certificate_bio = Memory(certificate_text);
  const auto key_bio = Memory(key_text);
  std::unique_ptr<X509, decltype(&X509_free)> ca(PEM_read_bio_X509(ca_bio.get(), nullptr, nullptr, nullptr),
                                                 &X509_free);
  std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr), &X509_free);
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  if (!ca || !certificate || !key) {
    return Fail(ErrorCode::kInvalidArgument, "the kubeconfig of the test needs an authority and a client certificate");
  }
  const bool good = X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get()) == 1 &&
                    SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
                    SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  if (!good) return Fail(ErrorCode::kInvalidArgument, "OpenSSL refuses the certificates of the kubeconfig");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

}  // namespace

struct Upstream::Tls {
  Context context;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl;
};

Upstream::Upstream(int fd, std::unique_ptr<Tls> tls) : fd_(fd), tls_(std::move(tls)) {}
Upstream::~Upstream() { close(fd_); }

Result<std::unique_ptr<Upstream>> Upstream::Connect(const kube::Config& config) {
  const size_t host = std::string("https://").size();
  const size_t colon = config.server.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (!config.server.starts_with("https://") || colon < host ||
      inet_pton(AF_INET, config.server.substr(host, colon - host).c_str(), &address.sin_addr) != 1) {
    return Fail(ErrorCode::kInvalidArgument, config.server + ": the proxy of the tests wants https://IP:PORT");
  }
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(config.server.substr(colon + 1))));
  Result<Context> context = MakeContext(config.tls);
  if (!context) return Fail(context.error());
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  auto tls = std::make_unique<Tls>(Tls{*context, {SSL_new(context->get()), &SSL_free}});
  SSL_set_fd(tls->ssl.get(), fd);
  std::unique_ptr<Upstream> upstream(new Upstream(fd, std::move(tls)));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      SSL_connect(upstream->tls_->ssl.get()) != 1) {
    return Fail(ErrorCode::kUnavailable, "the proxy of the tests cannot reach " + config.server);
  }
  return upstream;
}

bool Upstream::Write(const std::string& bytes) {
  return bytes.empty() || SSL_write(tls_->ssl.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
}

size_t Upstream::Read(char* at, size_t size) {
  const int count = SSL_read(tls_->ssl.get(), at, static_cast<int>(size));
  return count > 0 ? static_cast<size_t>(count) : 0;
}

bool Upstream::Pending() const { return SSL_pending(tls_->ssl.get()) > 0; }
void Upstream::Cut() { shutdown(fd_, SHUT_RDWR); }

}  // namespace trainyard::faults
