#include "trainer/generate/request.h"

#include <type_traits>

#include <nlohmann/json.hpp>

#include "trainer/tokenizer/utf8.h"

namespace trainyard::generate {
namespace {

// Calls visit(key, member) for every member: one list for both directions. The key of a text is the flag's.
template <typename R, typename Visit>
void Members(R& r, const Visit& visit) {
  visit("checkpoint", r.checkpoint), visit("model", r.model), visit("adapter", r.adapter);
  visit("tokenizer", r.tokenizer), visit("precision", r.precision);
  visit("prompt", r.prompt), visit("chat", r.chat), visit("template", r.chat_template), visit("system", r.system);
  visit("tokens", r.tokens), visit("ignoreEnd", r.ignore_end), visit("temperature", r.temperature);
  visit("topK", r.top_k), visit("topP", r.top_p), visit("seed", r.seed);
  visit("threads", r.threads), visit("json", r.json), visit("verbose", r.verbose);
}

}  // namespace

Status CheckText(const Request& request) {
  Status result;
  Members(request, [&](const char* key, const auto& member) {
    if constexpr (std::is_same_v<decltype(member), const std::string&>) {
      if (Status text = tokenizer::CheckUtf8(member); result && !text)
        result = Fail(text.error().Wrap(std::string("--") + key));
    }
  });
  return result;
}

std::string ToJson(const Request& request) {
  nlohmann::json out;
  Members(request, [&](const char* key, const auto& member) { out[key] = member; });
  return out.dump();
}

Result<Request> ParseRequest(const std::string& json) {
  Request request;
  try {
    const nlohmann::json in = nlohmann::json::parse(json);
    size_t members = 0;
    Members(request, [&](const char* key, auto& member) {
      in.at(key).get_to(member);
      ++members;
    });
    if (in.size() != members) return Fail(ErrorCode::kInvalidArgument, "the request has keys that nobody knows");
  } catch (const nlohmann::json::exception& error) {
    return Fail(ErrorCode::kInvalidArgument,
                std::string("the request is not one of 'trainyard generate' of this version: ") + error.what());
  }
  return request;
}

}  // namespace trainyard::generate
