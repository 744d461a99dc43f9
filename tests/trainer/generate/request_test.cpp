#include "trainer/generate/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::generate {
namespace {

using ::testing::HasSubstr;

TEST(Request, ComesBackAsItWas) {
  Request request;
  EXPECT_EQ(ParseRequest(ToJson(request)).value(), request);
  request.checkpoint = "/c/step-00000010", request.model = "/m", request.adapter = "/a", request.tokenizer = "bytes";
  request.precision = "BF16", request.prompt = "say \"\xd1\x8f\"\n", request.chat = true;
  request.chat_template = "qwen3", request.system = "be brief", request.tokens = 7, request.ignore_end = true;
  request.temperature = 0.7, request.top_k = 40, request.top_p = 0.95, request.seed = 0xffffffffffffffff;
  request.threads = 3, request.json = true, request.verbose = true;
  EXPECT_EQ(ParseRequest(ToJson(request)).value(), request);
}

TEST(Request, EveryTextIsUtf8) {
  Request request;
  EXPECT_TRUE(CheckText(request));
  request.prompt = std::string("\0\xd1\x8f", 3);
  EXPECT_TRUE(CheckText(request)) << "NUL is a character";
  EXPECT_EQ(ParseRequest(ToJson(request)).value(), request);
  const std::pair<const char*, std::string Request::*> texts[] = {
      {"--checkpoint", &Request::checkpoint},  {"--model", &Request::model},         {"--adapter", &Request::adapter},
      {"--tokenizer", &Request::tokenizer},    {"--precision", &Request::precision}, {"--prompt", &Request::prompt},
      {"--template", &Request::chat_template}, {"--system", &Request::system}};
  for (const auto& [flag, member] : texts) {
    Request bad;
    bad.*member = "ab\xff";
    const Status checked = CheckText(bad);
    ASSERT_FALSE(checked) << flag;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(checked.error().message, std::string(flag) + ": byte 2 is not UTF-8");
  }
}

TEST(Request, RefusesWhatIsNone) {
  EXPECT_THAT(ParseRequest("{").error().message, HasSubstr("is not one of 'trainyard generate' of this version"));
  EXPECT_THAT(ParseRequest("{}").error().message, HasSubstr("key 'checkpoint' not found"));
  std::string more = ToJson({});
  more.insert(1, "\"x\": 1, ");
  EXPECT_THAT(ParseRequest(more).error().message, HasSubstr("has keys that nobody knows"));
}

}  // namespace
}  // namespace trainyard::generate
