// The proxy's own reading of HTTP: if it were wrong, every fault test would test the proxy.
#include "tests/cluster/faults/wire.h"

#include <gtest/gtest.h>

#include "tests/cluster/faults/call.h"

namespace trainyard::faults {
namespace {

// Gives the text in pieces of `step` bytes, so that every place is once the end of a read.
WireReader Reader(std::string text, size_t step) {
  auto rest = std::make_shared<std::string>(std::move(text));
  return WireReader([rest, step](char* at, size_t size) {
    const size_t count = std::min({size, step, rest->size()});
    rest->copy(at, count);
    rest->erase(0, count);
    return count;
  });
}

TEST(FaultProxyWire, ReadsBodiesHoweverTheyAreCut) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
      "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
      "HTTP/1.1 204 No Content\r\n\r\n"
      "HTTP/1.1 500 Oops\r\n\r\nuntil the end";
  for (size_t step = 1; step < text.size(); ++step) {
    WireReader reader = Reader(text, step);
    std::string seen;
    for (const int status : {200, 201, 204, 500}) {
      const auto head = reader.ReadHead();
      ASSERT_TRUE(head.has_value());
      EXPECT_EQ(head->StatusCode(), status);
      reader.BeginBody(*head, true, status == 204);
      seen += reader.ReadWholeBody() + "|";
      EXPECT_FALSE(reader.broken());
    }
    EXPECT_EQ(seen, "hello|abc0123456789||until the end|") << "in steps of " << step;
  }
}

TEST(FaultProxyWire, TellsABrokenBodyFromAWholeOne) {
  for (const char* text : {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    WireReader reader = Reader(text, 4);
    const auto head = reader.ReadHead();
    ASSERT_TRUE(head.has_value());
    reader.BeginBody(*head, true, false);
    EXPECT_EQ(reader.ReadWholeBody(), "hello");
    EXPECT_TRUE(reader.broken()) << text;
  }
}

TEST(FaultProxyWire, NamesCallsAsRbacDoes) {
  const auto name = [](const char* method, const char* target) {
    const Call call = ParseCall(method, target);
    return call.verb + " " + call.ns + "/" + call.resource + "/" + call.name + "/" + call.subresource;
  };
  EXPECT_EQ(name("GET", "/api/v1/pods?limit=500"), "list /pods//");
  EXPECT_EQ(name("GET", "/api/v1/namespaces/a/pods?watch=true&x=y"), "watch a/pods//");
  EXPECT_EQ(name("GET", "/api/v1/nodes/n"), "get /nodes/n/");
  EXPECT_EQ(name("PUT", "/apis/trainyard.dev/v1alpha1/namespaces/a/trainingjobs/j/status"),
            "update a/trainingjobs/j/status");
  EXPECT_EQ(name("DELETE", "/api/v1/namespaces/a/pods?labelSelector=x"), "deletecollection a/pods//");
  EXPECT_EQ(name("DELETE", "/api/v1/namespaces/a/pods/p"), "delete a/pods/p/");
  EXPECT_EQ(name("PATCH", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l"), "patch a/leases/l/");
  EXPECT_EQ(name("GET", "/version"), "list ///");
  EXPECT_EQ(WithQuery("/api/v1/pods?limit=500&continue=c", "limit", "1"), "/api/v1/pods?continue=c&limit=1");
  EXPECT_EQ(ParseCall("GET", "/p?a=1&b=2").Query("b"), "2");
}

}  // namespace
}  // namespace trainyard::faults
