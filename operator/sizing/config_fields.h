// Reads fields of a Hugging Face config.json and keeps the first problem, so that the readers of the families stay
// flat; remembers what was read, so that what nobody knows can be told. Private to the room.
// Thread-safety: none, a short-lived local.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// Bounds far beyond any model.
inline constexpr int64_t kMostLayers = 10'000;
inline constexpr int64_t kMostWidth = 1'000'000;
inline constexpr int64_t kMostHeads = 10'000;
inline constexpr int64_t kMostHeadDim = 1'024;
inline constexpr int64_t kMostFfn = 10'000'000;
inline constexpr int64_t kMostVocab = 100'000'000;
inline constexpr int64_t kMostExperts = 100'000;

class ConfigFields {
 public:
  explicit ConfigFields(const nlohmann::json& config) : config_(config) {}  // an object; must outlive this

  // A whole number from 1 to `most`. `otherwise`: where the file has none or null; nullopt: that is a problem.
  int64_t Number(const char* name, std::optional<int64_t> otherwise, int64_t most) {
    return Number(name, otherwise, 1, most);
  }
  int64_t Number(const char* name, std::optional<int64_t> otherwise, int64_t least, int64_t most);
  bool Flag(const char* name, bool otherwise);
  // The numbers of a list; none where the file has none or null.
  std::set<int64_t> Numbers(const char* name, int64_t most);

  void Problem(const std::string& text) {
    if (problem_.empty()) problem_ = text;
  }
  const std::string& problem() const { return problem_; }

  // Keys that no reader has asked for and that are not known to leave the count alone, at most five; "" when none.
  std::string Unknown() const;

 private:
  const nlohmann::json* Find(const char* name);

  const nlohmann::json& config_;
  std::set<std::string> read_;
  std::string problem_;
};

// The readers, one per family. Numbers that are a problem come back as 1.
ModelShape ReadLlama(ConfigFields& f);
ModelShape ReadMistral(ConfigFields& f);
ModelShape ReadQwen2(ConfigFields& f);
ModelShape ReadQwen3(ConfigFields& f);
ModelShape ReadQwen3(ConfigFields& f, int64_t head_dim);  // where the file says none; 0: hidden / heads
ModelShape ReadPhi3(ConfigFields& f);
ModelShape ReadGemma(ConfigFields& f);
ModelShape ReadGemma2(ConfigFields& f);
ModelShape ReadGemma3(ConfigFields& f);
ModelShape ReadGpt2(ConfigFields& f);
ModelShape ReadGptNeox(ConfigFields& f);
ModelShape ReadMixtral(ConfigFields& f);
ModelShape ReadQwen2Moe(ConfigFields& f);
ModelShape ReadQwen3Moe(ConfigFields& f);

}  // namespace trainyard::sizing
