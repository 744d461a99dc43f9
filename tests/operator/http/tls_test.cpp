// The trust store of a connection. The process's environment is changed once, so that all of it is one test.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "operator/http/cpprest_tls.h"
#include "operator/http/transport.h"

namespace trainyard::http {
namespace {

namespace ssl = boost::asio::ssl;

// A self-signed certificate, as PEM text.
std::string Certificate(const char* name) {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(out.get(), certificate.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

// Subjects of the authorities that the context trusts.
std::string Trusted(ssl::context& context) {
  std::string names;
  const auto* objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context.native_handle()));
  for (int i = 0; i < sk_X509_OBJECT_num(objects); ++i) {
    const X509* certificate = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
    char name[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
    names += std::string(names.empty() ? "" : " ") + name;
  }
  return names;
}

// As the library makes it for a connection, with the authorities that OpenSSL loads for it.
struct Connection {
  Connection() { context.set_default_verify_paths(); }
  ssl::context context{ssl::context::sslv23};
};

TEST(CpprestTls, LoadsTheSystemsAuthoritiesOnceAndOnlyForThoseWhoTrustThem) {
  const auto file = std::filesystem::temp_directory_path() / ("tls_test_" + std::to_string(getpid()) + ".pem");
  std::ofstream(file) << Certificate("first-of-system") << Certificate("second-of-system");
  setenv("SSL_CERT_FILE", file.c_str(), 1);
  setenv("SSL_CERT_DIR", "/nowhere", 1);
  Connection before;
  EXPECT_EQ(Trusted(before.context), "first-of-system second-of-system");  // the costly way

  LoadSystemAuthoritiesOnce();
  LoadSystemAuthoritiesOnce();
  Connection after;
  EXPECT_EQ(Trusted(after.context), "");

  CpprestTls system({});
  Connection one, another;
  system.Configure(one.context);
  std::filesystem::remove(file);  // it is not read again
  system.Configure(another.context);
  EXPECT_EQ(Trusted(one.context), "first-of-system second-of-system");
  EXPECT_EQ(Trusted(another.context), "first-of-system second-of-system");
  EXPECT_EQ(system.problem(), "");

  TlsOptions own_authority;
  own_authority.ca_pem = Certificate("own");
  CpprestTls own(own_authority);
  Connection third;
  own.Configure(third.context);
  EXPECT_EQ(Trusted(third.context), "own");
  EXPECT_EQ(Trusted(one.context), "first-of-system second-of-system");
}

}  // namespace
}  // namespace trainyard::http
