// crds/trainingjobs.yaml against operator/api: the same fields both ways, the same defaults, the same limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "operator/api/defaults.h"
#include "operator/api/fields.h"
#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

const json& Crd() {
  static const json crd = [] {
    std::ifstream file(TRAINYARD_SOURCE_DIR "/crds/trainingjobs.yaml");
    std::stringstream text;
    text << file.rdbuf();
    auto documents = LoadYaml(text.str(), "crds/trainingjobs.yaml");
    EXPECT_TRUE(documents.has_value()) << documents.error().message;
    return documents->at(0);
  }();
  return crd;
}

const json& Version() { return Crd().at("spec").at("versions").at(0); }
const json& Schema() { return Version().at("schema").at("openAPIV3Schema"); }
const json& SpecSchema() { return Schema().at("properties").at("spec"); }
const json& StatusSchema() { return Schema().at("properties").at("status"); }

// The type that a schema gives to a value, and the one that a value has, in one vocabulary.
std::string SchemaType(const json& schema) {
  if (schema.value("x-kubernetes-int-or-string", false)) return "string";
  std::string type = schema.at("type");
  return type == "number" || type == "integer" ? "number" : type;
}
std::string ValueType(const json& value) { return value.is_object() ? "object" : value.type_name(); }

void ExpectSameFields(const json& schema, const json& value, const std::string& path) {
  EXPECT_TRUE(schema.contains("description") || path.ends_with("[*]")) << path << " has no description";
  ASSERT_EQ(SchemaType(schema), ValueType(value)) << path;
  if (schema.value("x-kubernetes-preserve-unknown-fields", false)) return;  // passed on as it is
  if (schema.contains("items")) {
    ASSERT_FALSE(value.empty()) << path << ": the full job must fill every list";
    for (const json& item : value) ExpectSameFields(schema["items"], item, path + "[]");
  } else if (schema.contains("additionalProperties")) {
    for (const json& item : value) ExpectSameFields(schema["additionalProperties"], item, path + "[*]");
  } else if (value.is_object()) {
    json none = json::object();
    const json& properties = schema.contains("properties") ? schema["properties"] : none;
    for (const auto& [name, sub] : properties.items()) {
      if (!value.contains(name)) {
        ADD_FAILURE() << path << "." << name << " is in the CRD but not in operator/api";
      } else {
        ExpectSameFields(sub, value[name], path + "." + name);
      }
    }
    for (const auto& [name, sub] : value.items()) {
      EXPECT_TRUE(properties.contains(name)) << path << "." << name << " is in operator/api but not in the CRD";
    }
  } else if (value.is_number() && schema.at("type") == "integer") {
    EXPECT_TRUE(value.is_number_integer()) << path;
    EXPECT_EQ(schema.value("format", ""), "int64") << path;
  } else if (value.is_number()) {
    EXPECT_TRUE(value.is_number_float()) << path;
  }
}

// Archive of fields.h that finds fields which the full job leaves out; the comparison below would not see them.
class FullnessCheck {
 public:
  FullnessCheck(const json& written, std::string path) : written_(written), path_(std::move(path)) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    Expect(name);
    if (written_.contains(name)) Descend(written_[name], path_ + "." + name, value);
  }
  template <typename Body>
  void Group(const char* name, const Body& body) {
    Expect(name);
    if (!written_.contains(name)) return;
    FullnessCheck inner(written_[name], path_ + "." + name);
    body(inner);
  }
  template <typename Body>
  void OptionalGroup(const char* name, bool /*present*/, const Body& body) {
    Group(name, body);
  }
  void Presence(const char* name, bool /*flag*/) { Expect(name); }
  void Count(const char* name, const std::string& /*text*/) { Expect(name); }
  template <typename T>
  void NonEmpty(const char* name, const T& /*value*/) {
    Expect(name);
  }
  void PreciseTime(const char* name, const std::optional<TimePoint>& /*time*/) { Expect(name); }
  void Opaque(const char* name, OpaqueKind /*kind*/, const std::string& /*text*/) { Expect(name); }
  void Passed(std::span<const OpaqueField> fields, const std::string& /*text*/) {
    for (const OpaqueField& field : fields) Expect(field.name);
  }
  void Refused(const char* name, const char* /*why*/) { EXPECT_FALSE(written_.contains(name)) << path_ << "." << name; }

 private:
  void Expect(const char* name) {
    EXPECT_TRUE(written_.contains(name)) << "FullJob leaves out " << path_ << "." << name;
  }
  template <typename T>
  static void Descend(const json& written, const std::string& path, const std::optional<T>& value) {
    if (value) Descend(written, path, *value);
  }
  template <typename T>
  static void Descend(const json& written, const std::string& path, const std::vector<T>& value) {
    for (size_t i = 0; i < value.size(); ++i) Descend(written[i], path + "[]", value[i]);
  }
  template <typename T>
  static void Descend(const json& written, const std::string& path, const T& value) {
    if constexpr (requires(FullnessCheck& a) { Fields(a, value); }) {
      FullnessCheck inner(written, path);
      Fields(inner, value);
    }
  }

  const json& written_;
  std::string path_;
};

TEST(Crd, IsComparedWithAJobThatFillsEveryField) {
  const TrainingJob job = FullJob();
  const json written = JobToJson(job);
  FullnessCheck spec(written["spec"], "spec");
  Fields(spec, job.spec);
  FullnessCheck status(written["status"], "status");
  Fields(status, job.status);
}

TEST(Crd, HasTheFieldsOfTheApiBothWays) {
  ExpectSameFields(SpecSchema(), SpecToJson(FullJob().spec), "spec");
  ExpectSameFields(StatusSchema(), StatusToJson(FullJob().status), "status");
}

// What the API server does to an object before storing it.
void FillIn(const json& schema, json& value) {
  if (value.is_array() && schema.contains("items")) {
    for (json& item : value) FillIn(schema["items"], item);
  }
  if (!value.is_object() || !schema.contains("properties")) return;
  for (const auto& [name, sub] : schema["properties"].items()) {
    if (!value.contains(name) && sub.contains("default")) value[name] = sub["default"];
    if (value.contains(name)) FillIn(sub, value[name]);
  }
}

TEST(Crd, HasTheDefaultsOfTheApi) {
  for (const json& manifest : {MinimalTrainerManifest(), MinimalImageManifest()}) {
    json stored = manifest;
    FillIn(Schema(), stored);
    EXPECT_EQ(stored["spec"], SpecToJson(JobFromJson(manifest)->spec));
    // And the computed defaults make the same job of both.
    TrainingJob from_manifest = JobFromJson(manifest).value();
    TrainingJob from_stored = JobFromJson(stored).value();
    ApplyDefaults(from_manifest);
    ApplyDefaults(from_stored);
    EXPECT_EQ(SpecToJson(from_manifest.spec), SpecToJson(from_stored.spec));
    EXPECT_THAT(Validate(from_stored), testing::IsEmpty());
  }
}

template <NamedEnum E>
json Names() {
  json names = json::array();
  for (std::string_view name : AllNames<E>()) names.push_back(name);
  return names;
}

TEST(Crd, HasTheEnumValuesOfTheApi) {
  auto at = [](const char* pointer) { return Schema().at(json::json_pointer(pointer)).at("enum"); };
  EXPECT_EQ(at("/properties/spec/properties/model/properties/architecture/properties/family"), Names<Family>());
  const std::string adapter = "/properties/spec/properties/model/properties/adapter/properties/";
  EXPECT_EQ(at((adapter + "type").c_str()), Names<AdapterType>());
  EXPECT_EQ(at((adapter + "quantizeBase").c_str()), Names<QuantizeBase>());
  EXPECT_EQ(at("/properties/spec/properties/data/properties/format"), Names<DataFormat>());
  EXPECT_EQ(at("/properties/spec/properties/training/properties/device"), Names<DeviceKind>());
  EXPECT_EQ(at("/properties/spec/properties/training/properties/precision"), Names<Precision>());
  const std::string schedule = "/properties/spec/properties/training/properties/schedule/properties/";
  EXPECT_EQ(at((schedule + "type").c_str()), Names<ScheduleType>());
  EXPECT_EQ(at((schedule + "decayShape").c_str()), Names<DecayShape>());
  EXPECT_EQ(at("/properties/spec/properties/training/properties/optimizer/properties/name"), Names<OptimizerKind>());
  EXPECT_EQ(at("/properties/spec/properties/parallelism/properties/strategy"), Names<Strategy>());
  EXPECT_EQ(at("/properties/spec/properties/parallelism/properties/offload"), Names<OffloadTo>());
  EXPECT_EQ(at("/properties/spec/properties/gpus/properties/nvlink"), Names<NvLink>());
  EXPECT_EQ(at("/properties/spec/properties/gpus/properties/topology/properties/mode"), Names<TopologyMode>());
  EXPECT_EQ(at("/properties/spec/properties/checkpoint/properties/resume"), Names<Resume>());
  EXPECT_EQ(at("/properties/spec/properties/checkpoint/properties/onDelete"), Names<OnDelete>());
  EXPECT_EQ(at("/properties/status/properties/phase"), Names<Phase>());
}

// A leaf of the spec with its schema and its place in the full job.
struct Leaf {
  json schema;
  json::json_pointer pointer;
  std::string path;
};

void CollectLeaves(const json& schema, const json::json_pointer& pointer, const std::string& path,
                   std::vector<Leaf>& out) {
  if (schema.contains("properties")) {
    for (const auto& [name, sub] : schema["properties"].items()) {
      CollectLeaves(sub, pointer / name, path + "." + name, out);
    }
    return;
  }
  out.push_back({schema, pointer, path});
  if (schema.contains("items")) CollectLeaves(schema["items"], pointer / 0, path + "[0]", out);
}

std::vector<std::string> ErrorsOf(const json& object) {
  std::vector<std::string> errors;
  TrainingJob job = ReadJob(object, errors);
  std::vector<std::string> more = Validate(job);
  errors.insert(errors.end(), more.begin(), more.end());
  return errors;
}

bool Complains(const std::vector<std::string>& errors, const std::string& path, const std::string& about = "") {
  return std::any_of(errors.begin(), errors.end(), [&](const std::string& e) {
    return e.starts_with(path + ": ") && e.find(about) != std::string::npos;
  });
}

TEST(Crd, HasTheLimitsOfTheApi) {
  std::vector<Leaf> leaves;
  CollectLeaves(SpecSchema(), json::json_pointer("/spec"), "spec", leaves);
  json full = JobToJson(FullJob());
  int limits = 0;
  auto expect = [&](const Leaf& leaf, const json& value, const std::string& about, bool refused) {
    json broken = full;
    broken[leaf.pointer] = value;
    EXPECT_EQ(Complains(ErrorsOf(broken), leaf.path, about), refused)
        << leaf.path << " = " << value.dump().substr(0, 80) << " (" << about << ")";
    ++limits;
  };
  for (const Leaf& leaf : leaves) {
    const json& s = leaf.schema;
    bool integer = s.value("type", "") == "integer";
    if (s.contains("minimum")) {
      json minimum = s["minimum"];
      bool exclusive = s.value("exclusiveMinimum", false);
      expect(leaf, integer ? json(minimum.get<int64_t>() - 1) : json(minimum.get<double>() - 1e-9),
             exclusive ? "more than" : "less than", true);
      expect(leaf, minimum, exclusive ? "more than" : "less than", exclusive);
    }
    if (s.contains("maximum")) {
      json maximum = s["maximum"];
      const bool exclusive = s.value("exclusiveMaximum", false);
      const std::string bound = integer ? maximum.dump() : json(maximum.get<double>()).dump();
      std::string about = "is more than " + bound;
      expect(leaf, integer ? json(maximum.get<int64_t>() + 1) : json(maximum.get<double>() * (1 + 1e-9)), about, true);
      expect(leaf, maximum, exclusive ? "less than " + bound : about, exclusive);
    }
    if (s.contains("maxLength")) {
      expect(leaf, std::string(s["maxLength"].get<size_t>() + 1, 'a'), "", true);
    }
    if (s.contains("maxItems")) {
      json list = json::array();
      while (list.size() <= s["maxItems"].get<size_t>()) list.push_back(full[leaf.pointer][0]);
      expect(leaf, list, s.value("minItems", 0) == s["maxItems"] ? "must have" : "items", true);
    }
    if (s.contains("enum")) expect(leaf, "Nonsense", "", true);
  }
  EXPECT_GT(limits, 100);
}

TEST(Crd, DescribesAndBoundsWhatItsRulesRead) {
  std::vector<Leaf> leaves;
  CollectLeaves(SpecSchema(), json::json_pointer(), "spec", leaves);
  for (const Leaf& leaf : leaves) {
    std::string type = leaf.schema.value("type", "");
    EXPECT_TRUE(leaf.schema.contains("description")) << leaf.path;
    bool bounded =
        leaf.schema.contains("maxLength") || leaf.schema.contains("maxItems") || leaf.schema.contains("enum");
    EXPECT_TRUE(bounded || (type != "array" && type != "string")) << leaf.path;
  }
}

void ExpectListTypes(const json& schema, const std::string& path) {
  const bool passed_on = path.starts_with("object.spec.podTemplate.spec.");
  EXPECT_FALSE(schema.contains("x-kubernetes-preserve-unknown-fields") && !passed_on) << path;
  EXPECT_EQ(schema.value("type", "") == "array", schema.contains("x-kubernetes-list-type")) << path;
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, sub] : properties.items()) ExpectListTypes(sub, path + "." + name);
  if (schema.contains("items")) ExpectListTypes(schema["items"], path + "[]");
}

TEST(Crd, GivesEveryListATypeAndKeepsNothingThatItDoesNotKnow) {
  ExpectListTypes(Schema(), "object");
  EXPECT_FALSE(Crd().at("spec").contains("preserveUnknownFields"));
}

// "self.a.b" of a rule must be a field of its schema: a misspelled rule would be refused by the API server only.
void ExpectRulesNameFields(const json& schema, const std::string& path) {
  for (const json& rule : schema.value("x-kubernetes-validations", json::array())) {
    const std::string text = rule.at("rule");
    EXPECT_FALSE(rule.at("message").get<std::string>().empty());
    EXPECT_EQ(std::count(text.begin(), text.end(), '('), std::count(text.begin(), text.end(), ')')) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\'') % 2, 0) << text;
    size_t references = 0;
    for (const char* root : {"self.", "oldSelf."}) {
      std::string key = root;
      for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
        if (at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1]))) continue;
        size_t end = at + key.size();
        const json* here = &schema;
        while (true) {
          size_t stop = end;
          while (stop < text.size() && std::isalnum(static_cast<unsigned char>(text[stop]))) ++stop;
          std::string name = text.substr(end, stop - end);
          if (stop < text.size() && text[stop] == '(') break;  // a method: size(), all(...)
          if (name == "metadata" || name == "name") break;
          ASSERT_TRUE(here->contains("properties") && (*here)["properties"].contains(name)) << path << ": " << text;
          here = &(*here)["properties"][name];
          ++references;
          if (stop >= text.size() || text[stop] != '.') break;
          end = stop + 1;
        }
      }
    }
    EXPECT_TRUE(references > 0 || path == "object" || !schema.contains("properties")) << text;
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, sub] : properties.items()) {
    ExpectRulesNameFields(sub, path + "." + name);
  }
  if (schema.contains("items")) ExpectRulesNameFields(schema["items"], path + "[]");
}

TEST(Crd, RulesNameExistingFields) { ExpectRulesNameFields(Schema(), "object"); }

TEST(Crd, KeepsItsNamesAndSubresources) {
  const json& names = Crd().at("spec").at("names");
  EXPECT_EQ(names.at("kind"), kKind);
  EXPECT_EQ(names.at("plural"), kPlural);
  EXPECT_EQ(names.at("shortNames"), json({"tj"}));
  EXPECT_EQ(Crd().at("spec").at("group"), kGroup);
  EXPECT_EQ(Version().at("name"), kVersion);
  EXPECT_EQ(Crd().at("metadata").at("name"), std::string(kPlural) + "." + kGroup);
  const json& scale = Version().at("subresources").at("scale");
  EXPECT_TRUE(Version().at("subresources").contains("status"));
  // Each path of a column and of the scale subresource leads to a field.
  std::vector<std::string> paths = {scale.at("specReplicasPath"), scale.at("statusReplicasPath"),
                                    scale.at("labelSelectorPath")};
  std::vector<std::string> columns;
  for (const json& column : Version().at("additionalPrinterColumns")) {
    columns.push_back(column.at("name"));
    if (column["type"] != "date") paths.push_back(column.at("jsonPath"));
  }
  EXPECT_THAT(columns, testing::ElementsAre("PHASE", "GPUS", "PRODUCT", "STEP", "LOSS", "TOKENS/S", "CHECKPOINT", "AGE",
                                            "STRATEGY", "REASON"));
  json full = JobToJson(FullJob());
  for (std::string path : paths) {
    std::replace(path.begin(), path.end(), '.', '/');
    EXPECT_TRUE(full.contains(json::json_pointer(path))) << path;
  }
}

}  // namespace
}  // namespace trainyard::api
