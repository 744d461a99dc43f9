#include "trainer/generate/run.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <new>
#include <optional>
#include <span>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "trainer/generate/decode.h"
#include "trainer/generate/prompt.h"
#include "trainer/generate/request.h"
#include "trainer/generate/sampler.h"
#include "trainer/generate/source.h"
#include "trainer/generate/text_stream.h"
#include "trainer/model/family.h"

namespace trainyard::generate {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double Rate(size_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

// "OutOfTokens" and so on, and in words.
struct StopWords {
  const char* name;
  const char* words;
};
StopWords WordsOf(Stop stop) {
  switch (stop) {
    case Stop::kEnd:
      return {"EndOfText", "the text ended"};
    case Stop::kPositions:
      return {"Positions", "the model has no more positions"};
    case Stop::kTokens:
      break;
  }
  return {"Tokens", "as many as were asked for"};
}

int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return 4;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      return 3;
    case ErrorCode::kInternal:
    case ErrorCode::kDataLoss:
    case ErrorCode::kResourceExhausted:
      return 1;
    default:
      return 2;
  }
}

Status Write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return Fail(ErrorCode::kUnavailable, "standard output cannot be written to");
}

// Model, tokenizer and prompt, ready to go.
struct Session {
  Source source;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::optional<UsedAdapter> adapter;
  std::vector<uint32_t> prompt;
  DecodeOptions options;
  at::ScalarType type = at::kFloat;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<model::Model> model;
  double load_seconds = 0;
};

// Everything that may be wrong with the request is looked at before the weights are read.
Result<Session> Prepare(const Request& request) {
  Result<Source> source = OpenSource(request);
  if (!source) return Fail(source.error());
  Session s{std::move(*source), nullptr, {}, {}, {}, at::kFloat, nullptr, nullptr, 0};
  auto opened = OpenTokenizer(request, s.source);
  if (!opened) return Fail(opened.error());
  s.tokenizer = std::move(*opened);
  auto prompt = PromptTokens({request.prompt, request.chat, request.chat_template, request.system}, *s.tokenizer);
  if (!prompt) return Fail(prompt.error());
  s.prompt = std::move(*prompt);
  s.options.tokens = request.tokens;
  s.options.positions = s.source.model.max_positions;
  if (static_cast<int64_t>(s.prompt.size()) > s.options.positions) {
    return Fail(ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(s.prompt.size()) +
                                                 " tokens, the model in " + s.source.path + " " +
                                                 std::to_string(s.options.positions) + " positions");
  }
  if (!request.ignore_end) {
    auto ends = EndTokens(s.source.companions, s.source.model.vocab, *s.tokenizer);
    if (!ends) return Fail(ends.error());
    s.options.ends = std::move(*ends);
  }
  const Clock::time_point begin = Clock::now();
  auto adapter = OpenAdapter(request, s.source);
  if (!adapter) return Fail(adapter.error());
  if (*adapter) s.adapter = Describe(**adapter, s.source);
  s.type = TypeOf(request, s.source);
  auto weights = LoadWeights(s.source, s.type, *adapter ? &**adapter : nullptr);
  if (!weights) return Fail(weights.error());
  s.weights = std::move(*weights);
  model::Config config = model::ConfigOf(s.source.model);
  if (auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    // Angles of positions that are not come to would only take memory.
    llama->max_positions = std::min(llama->max_positions, static_cast<int64_t>(s.prompt.size()) + s.options.tokens);
  }
  s.model = model::Make(config, *s.weights);
  s.load_seconds = Since(begin);
  return s;
}

nlohmann::ordered_json AsJson(const Request& request, const Session& s, const Decoded& made, const std::string& text) {
  nlohmann::ordered_json out = {
      {"prompt", request.prompt},
      {"text", text},
      {"tokens", made.tokens},
      {"promptTokens", s.prompt.size()},
      {"stop", WordsOf(made.stop).name},
      {"precision", s.type == at::kBFloat16 ? "BF16" : "FP32"},
      {"loadSeconds", s.load_seconds},
      {"promptSeconds", made.prompt_seconds},
      {"seconds", made.seconds},
      // The first token is the prompt's.
      {"tokensPerSecond", made.tokens.size() > 1 ? Rate(made.tokens.size() - 1, made.seconds) : 0}};
  if (s.adapter) {
    nlohmann::ordered_json& adapter = out["adapter"] = {{"path", s.adapter->path}};
    if (s.adapter->step) adapter["step"] = *s.adapter->step;
    adapter["baseCompared"] = s.adapter->base_compared;
  }
  return out;
}

// ", with the adapter in DIRECTORY ..."; nothing without one.
std::string WordsOf(const std::optional<UsedAdapter>& adapter) {
  if (!adapter) return "";
  return ", with the adapter in " + adapter->path +
         (adapter->step ? " of step " + std::to_string(*adapter->step) : std::string()) +
         (adapter->base_compared ? " (the base is the one it was trained on)" : " (the base was not compared)");
}

void SayFigures(const Session& s, const Decoded& made) {
  std::fprintf(
      stderr,
      "%s%s: %lld parameters in %s, read in %.2f s; prompt of %zu tokens in %.2f s; %zu tokens, %.1f tokens/s; "
      "stopped: %s\n",
      s.source.path.c_str(), WordsOf(s.adapter).c_str(), static_cast<long long>(s.weights->count()),
      s.type == at::kBFloat16 ? "BF16" : "FP32", s.load_seconds, s.prompt.size(), made.prompt_seconds,
      made.tokens.size(), made.tokens.size() > 1 ? Rate(made.tokens.size() - 1, made.seconds) : 0.0,
      WordsOf(made.stop).words);
}

Status Generate(const Request& request) {
  if (request.threads > 0) at::set_num_threads(request.threads);
  Result<Session> prepared = Prepare(request);
  if (!prepared) return Fail(prepared.error());
  Session& s = *prepared;
  Sampler sampler({request.temperature, request.top_k, request.top_p, request.seed});
  TextStream stream(*s.tokenizer, s.prompt);
  std::string text;
  const auto give = [&](Result<std::string> piece) -> Status {
    if (!piece) return Fail(piece.error());
    text += *piece;
    return request.json || piece->empty() ? Status() : Write(*piece);
  };
  const Result<Decoded> made = Decode(
      *s.model, at::kCPU, s.prompt, s.options,
      [&](const at::Tensor& logits, int64_t position) {
        return sampler.Draw({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}, position);
      },
      [&](int64_t token) { return give(stream.Push(static_cast<uint32_t>(token))); });
  if (!made) return Fail(made.error());
  if (const Status rest = give(stream.End()); !rest) return rest;
  if (request.json) return Write(AsJson(request, s, *made, text).dump() + "\n");
  if (const Status end = Write("\n"); !end) return end;
  if (request.verbose) SayFigures(s, *made);
  return {};
}

int Complain(const std::string& message, int code) {
  std::fprintf(stderr, "trainyard: %s\n", message.c_str());
  return code;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int Run(std::string_view json) {
  try {
    const Result<Request> request = ParseRequest(std::string(json));
    if (!request) return Complain(request.error().message, ExitCodeOf(request.error()));
    const Status done = Generate(*request);
    if (!done) return Complain(done.error().message, ExitCodeOf(done.error()));
    return 0;
  } catch (const std::bad_alloc&) {
    return Complain("out of memory: the weights do not fit this machine; --precision BF16 takes half of FP32", 1);
  } catch (const model::TokenError& error) {
    return Complain(error.what(), 2);
  } catch (const c10::Error& error) {
    return Complain(FirstLine(error.what_without_backtrace()), 1);
  } catch (const std::exception& error) {
    return Complain(FirstLine(error.what()), 1);
  } catch (...) {
    return Complain("something was thrown that is no exception: a bug", 1);
  }
}

}  // namespace trainyard::generate
