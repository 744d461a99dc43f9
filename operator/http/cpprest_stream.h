// A Stream over the body of a cpprestsdk response. Private to the room. Thread-safety: as Stream.
#pragma once

#include <cpprest/http_client.h>

#include <memory>
#include <string>

#include "operator/http/cpprest_calls.h"
#include "operator/http/transport.h"

namespace trainyard::http {

// `where` names the server in messages.
std::unique_ptr<Stream> NewCpprestStream(std::shared_ptr<CpprestCalls::Call> call, web::http::http_response response,
                                         std::string where);

}  // namespace trainyard::http
