#include "operator/cli/volume_path.h"

#include "operator/api/names.h"

namespace trainyard::cli {

Result<api::VolumeDirectory> ParseVolumePath(const std::string& text) {
  const size_t colon = text.find(':');
  api::VolumeDirectory place;
  place.volume = text.substr(0, colon);
  if (colon != std::string::npos) place.path = text.substr(colon + 1);
  const bool out = ("/" + place.path + "/").find("/../") != std::string::npos;
  if (!place.volume.empty() && !place.path.empty() && place.path.front() != '/' && !out) return place;
  return Fail(ErrorCode::kInvalidArgument,
              "'" + api::Printable(text) +
                  "' is not VOLUME:PATH, a volume of the job and a relative path on it, such as models:llama/export");
}

}  // namespace trainyard::cli
