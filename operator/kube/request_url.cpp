#include "operator/kube/request_url.h"

#include <cctype>

namespace trainyard::kube {

std::string PercentEncode(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const unsigned char c : text) {
    const bool plain = c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '~');
    if (plain) {
      encoded += static_cast<char>(c);
    } else {
      encoded += {'%', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return encoded;
}

std::string GroupOf(cluster::Kind kind) {
  const std::string_view version = cluster::InfoOf(kind).api_version;
  const size_t slash = version.find('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : version.substr(0, slash));
}

Result<std::string> ResourcePath(cluster::Kind kind, const std::string& ns, const std::string& name,
                                 const std::string& subresource, const Query& query) {
  const cluster::KindInfo& info = cluster::InfoOf(kind);
  for (const std::string& part : {ns, name}) {
    if (part == "." || part == "..") {
      return Fail(ErrorCode::kInvalidArgument, "\"" + part + "\" is no name of an object");
    }
  }
  const bool core = info.api_version.find('/') == std::string_view::npos;
  std::string path = (core ? "/api/" : "/apis/") + std::string(info.api_version);
  if (info.namespaced && !ns.empty()) path += "/namespaces/" + PercentEncode(ns);
  path += "/" + std::string(info.plural);
  if (!name.empty()) path += "/" + PercentEncode(name);
  if (!subresource.empty()) path += "/" + PercentEncode(subresource);
  char separator = '?';
  for (const auto& [key, value] : query) {
    path += separator + PercentEncode(key) + "=" + PercentEncode(value);
    separator = '&';
  }
  return path;
}

}  // namespace trainyard::kube
