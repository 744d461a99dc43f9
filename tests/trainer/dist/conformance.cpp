#include "tests/trainer/dist/conformance.h"

#include <thread>

#include "trainer/dist/mesh.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#define REQUIRE(condition)                                                                     \
  if (!(condition)) {                                                                          \
    return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition " is false"; \
  }

const at::ScalarType kSummable[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};
const int64_t kLengths[] = {0, 1, 5, 1000, 70001};
// More than two pieces of a reduce-scatter in float.
const int64_t kLong = 600000;

Reduce Ordered(at::ScalarType type) { return type == at::kLong ? Reduce::kInt64 : Reduce::kOrderedSum; }

// Values whose floating-point sum depends on the order; the same on every rank that asks for the same rank's.
at::Tensor Values(int rank, int64_t n, at::ScalarType type, int64_t salt = 0) {
  at::Tensor i = at::arange(n, at::kLong);
  at::Tensor mixed = (i * 104729 + (rank + 1) * 7919 + salt * 31).remainder(1009) - 500;
  return type == at::kLong ? mixed * 1000003 : (mixed.to(at::kDouble) / 7.0).to(type);
}

// The sum that rank order defines, made independently with ATen.
at::Tensor OrderedSum(int world, int64_t n, at::ScalarType type) {
  const bool small = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor sum = Values(0, n, type).to(small ? at::kFloat : type);
  for (int r = 1; r < world; ++r) {
    sum = sum + Values(r, n, type);
  }
  return sum.to(type);
}

std::string AllGather(Comm& c) {
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kByte}) {
    for (int64_t n : kLengths) {
      const auto raw = [&](int r) { return type == at::kByte ? Values(r, n, at::kLong).to(type) : Values(r, n, type); };
      at::Tensor out = at::empty({c.size() * n}, type);
      c.AllGather(out, raw(c.rank()))->Wait();
      for (int r = 0; r < c.size(); ++r) {
        REQUIRE(at::equal(out.narrow(0, r * n, n), raw(r)));
      }
    }
  }
  return "";
}

std::string AllGatherInPlace(Comm& c) {
  at::Tensor out = at::zeros({c.size(), 3});
  out[c.rank()].fill_(c.rank() + 1);
  c.AllGather(out, out[c.rank()])->Wait();
  for (int r = 0; r < c.size(); ++r) {
    REQUIRE(at::equal(out[r], at::full({3}, r + 1.0F)));
  }
  return "";
}

std::string ReduceScatter(Comm& c) {
  for (at::ScalarType type : kSummable) {
    for (int64_t n : kLengths) {
      at::Tensor out = at::empty({n}, type);
      at::Tensor in = Values(c.rank(), c.size() * n, type);
      c.ReduceScatter(out, in, Ordered(type))->Wait();
      REQUIRE(at::equal(out, OrderedSum(c.size(), c.size() * n, type).narrow(0, c.rank() * n, n)));
      REQUIRE(at::equal(in, Values(c.rank(), c.size() * n, type)));
    }
  }
  at::Tensor many = at::empty({kLong});
  c.ReduceScatter(many, Values(c.rank(), c.size() * kLong, at::kFloat), Reduce::kOrderedSum)->Wait();
  REQUIRE(at::equal(many, OrderedSum(c.size(), c.size() * kLong, at::kFloat).narrow(0, c.rank() * kLong, kLong)));
  at::Tensor out = at::empty({4});
  c.ReduceScatter(out, at::ones({c.size(), 4}), Reduce::kSum)->Wait();
  REQUIRE(at::equal(out, at::full({4}, static_cast<float>(c.size()))));
  return "";
}

std::string AllReduce(Comm& c) {
  for (at::ScalarType type : kSummable) {
    for (int64_t n : kLengths) {
      at::Tensor t = Values(c.rank(), n, type);
      c.AllReduce(t, Ordered(type))->Wait();
      REQUIRE(at::equal(t, OrderedSum(c.size(), n, type)));
    }
  }
  for (int64_t n : {kLong * 3 + 1, kLong * 3 + 2}) {
    at::Tensor many = Values(c.rank(), n, at::kFloat);
    c.AllReduce(many, Reduce::kOrderedSum)->Wait();
    REQUIRE(at::equal(many, OrderedSum(c.size(), n, at::kFloat)));
  }
  at::Tensor shaped = at::ones({3, 2});
  c.AllReduce(shaped, Reduce::kSum)->Wait();
  REQUIRE(at::equal(shaped, at::full({3, 2}, static_cast<float>(c.size()))));
  return "";
}

std::string SumsOfIntegersWrap(Comm& c) {
  at::Tensor t = at::full({2}, std::numeric_limits<int64_t>::max(), at::kLong);
  uint64_t expected = 0;
  for (int r = 0; r < c.size(); ++r) {
    expected += static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }
  c.AllReduce(t, Reduce::kInt64)->Wait();
  REQUIRE(t[1].item<int64_t>() == static_cast<int64_t>(expected));
  return "";
}

std::string AllToAll(Comm& c) {
  for (int64_t n : kLengths) {
    // What rank a sends to rank b is Values(a, n, type, b).
    std::vector<at::Tensor> mine;
    std::vector<at::Tensor> expected;
    for (int r = 0; r < c.size(); ++r) {
      mine.push_back(Values(c.rank(), n, at::kBFloat16, r));
      expected.push_back(Values(r, n, at::kBFloat16, c.rank()));
    }
    at::Tensor out = at::empty({c.size() * n}, at::kBFloat16);
    c.AllToAll(out, at::cat(mine))->Wait();
    REQUIRE(at::equal(out, at::cat(expected)));
  }
  return "";
}

std::string Broadcast(Comm& c) {
  for (int root = 0; root < c.size(); ++root) {
    for (int64_t n : kLengths) {
      at::Tensor t = Values(c.rank(), n, at::kDouble);
      c.Broadcast(t, root)->Wait();
      REQUIRE(at::equal(t, Values(root, n, at::kDouble)));
    }
  }
  return "";
}

std::string SendAndRecv(Comm& c) {
  if (c.size() == 1) {
    return "";
  }
  const int right = (c.rank() + 1) % c.size();
  const int left = (c.rank() - 1 + c.size()) % c.size();
  for (int64_t n : kLengths) {
    // Both directions of the ring at once, told apart by their tags, two messages in order on one of them.
    at::Tensor a = at::empty({n});
    at::Tensor b = at::empty({n});
    at::Tensor d = at::empty({n});
    std::vector<WorkPtr> works;
    works.push_back(c.Send(Values(c.rank(), n, at::kFloat, 1), right, 7));
    works.push_back(c.Send(Values(c.rank(), n, at::kFloat, 2), right, 7));
    works.push_back(c.Send(Values(c.rank(), n, at::kFloat, 3), left, 9));
    works.push_back(c.Recv(d, right, 9));
    works.push_back(c.Recv(a, left, 7));
    works.push_back(c.Recv(b, left, 7));
    for (auto& work : works) {
      work->Wait();
    }
    REQUIRE(at::equal(a, Values(left, n, at::kFloat, 1)));
    REQUIRE(at::equal(b, Values(left, n, at::kFloat, 2)));
    REQUIRE(at::equal(d, Values(right, n, at::kFloat, 3)));
  }
  return "";
}

std::string ManyCallsInFlight(Comm& c) {
  std::vector<at::Tensor> gathered;
  std::vector<at::Tensor> reduced;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 40; ++i) {
    gathered.push_back(at::empty({c.size() * (i + 1)}));
    reduced.push_back(Values(c.rank(), 100 * i, at::kFloat));
    works.push_back(c.AllGather(gathered.back(), Values(c.rank(), i + 1, at::kFloat, i)));
    works.push_back(c.AllReduce(reduced.back(), Reduce::kOrderedSum));
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) {
    (*work)->Wait();
    (*work)->Wait();  // again: no effect
  }
  for (int i = 0; i < 40; ++i) {
    REQUIRE(at::equal(gathered[i].narrow(0, 0, i + 1), Values(0, i + 1, at::kFloat, i)));
    REQUIRE(at::equal(reduced[i], OrderedSum(c.size(), 100 * i, at::kFloat)));
  }
  return "";
}

std::string DroppedWorkStillHappens(Comm& c) {
  at::Tensor t = at::ones({10});
  c.AllReduce(t, Reduce::kSum);
  c.Barrier();  // runs after the call above
  REQUIRE(at::equal(t, at::full({10}, static_cast<float>(c.size()))));
  return "";
}

std::string Split(Comm& c) {
  // Even and odd ranks, each in reverse order.
  auto half = c.Split(c.rank() % 2, -c.rank());
  const int members = (c.size() + 1 - c.rank() % 2) / 2;
  REQUIRE(half->size() == members);
  REQUIRE(half->rank() == members - 1 - c.rank() / 2);
  at::Tensor ranks = at::empty({members}, at::kLong);
  half->AllGather(ranks, at::full({1}, c.rank(), at::kLong))->Wait();
  for (int i = 0; i < members; ++i) {
    REQUIRE(ranks[i].item<int64_t>() == 2 * (members - 1 - i) + c.rank() % 2);
  }
  // A split of a split, and one that some ranks do not join.
  auto again = half->Split(0, half->rank());
  REQUIRE(again->size() == members);
  again->Barrier();
  auto some = c.Split(c.rank() == 0 ? -1 : 5, 0);
  REQUIRE((some == nullptr) == (c.rank() == 0));
  if (some) {
    some->Barrier();
    REQUIRE(some->size() == c.size() - 1);
  }
  return "";
}

std::string MeshDimensions(Comm& c) {
  for (int shard = 1; shard <= c.size(); ++shard) {
    if (c.size() % shard != 0) {
      try {
        Mesh mesh(c, shard);
        return "a mesh of " + std::to_string(shard) + " divides " + std::to_string(c.size());
      } catch (const CommError& e) {
        REQUIRE(e.kind() == CommError::Kind::kUsage);
      }
      continue;
    }
    Mesh mesh(c, shard);
    REQUIRE(mesh.shard().size() == shard && mesh.replicate().size() == c.size() / shard);
    REQUIRE(mesh.shard().rank() == c.rank() % shard && mesh.replicate().rank() == c.rank() / shard);
    REQUIRE(mesh.Dimension("shard") == &mesh.shard() && mesh.Dimension("tp") == nullptr);
    // A sum over shards and then over replicas is a sum over the world.
    at::Tensor t = at::full({3}, c.rank() + 1.0F);
    mesh.shard().AllReduce(t, Reduce::kSum)->Wait();
    mesh.replicate().AllReduce(t, Reduce::kSum)->Wait();
    REQUIRE(at::equal(t, at::full({3}, c.size() * (c.size() + 1) / 2.0F)));
  }
  return "";
}

std::string CountsPayload(Comm& c) {
  const int64_t before = c.payload_bytes();
  at::Tensor out = at::empty({c.size() * 10});
  c.AllGather(out, at::ones({10}))->Wait();
  c.AllReduce(out, Reduce::kSum)->Wait();
  c.AllGather(at::empty({0}), at::empty({0}))->Wait();
  const int64_t one = c.size() == 1 ? 0 : c.size() * 40;
  REQUIRE(c.payload_bytes() - before == 2 * one);
  REQUIRE(c.payload_bytes(Call::kAllReduce) == one);
  return "";
}

std::string LeavesVersionCountersAlone(Comm& c) {
  at::Tensor t = at::ones({6});
  const auto version = t._version();
  c.AllReduce(t, Reduce::kSum)->Wait();
  c.AllGather(at::empty({c.size() * 6}), t)->Wait();
  REQUIRE(t._version() == version);
  return "";
}

std::string RefusesWrongArguments(Comm& c) {
  const at::Tensor two = at::ones({2});
  const std::function<void()> wrong[] = {
      [&] { c.AllGather(at::empty({2 * c.size() + 1}), two); },
      [&] { c.AllGather(at::empty({2 * c.size()}, at::kDouble), two); },
      [&] { c.ReduceScatter(two, at::empty({2 * c.size() + 1}), Reduce::kSum); },
      [&] { c.AllReduce(two, Reduce::kInt64); },
      [&] { c.AllReduce(at::ones({2}, at::kLong), Reduce::kSum); },
      [&] { c.AllReduce(at::ones({4, 4}).t(), Reduce::kSum); },
      [&] { c.AllReduce(at::Tensor(), Reduce::kSum); },
      [&] { c.AllToAll(at::empty({c.size() + 1}), at::empty({c.size() + 2})); },
      [&] { c.Broadcast(two, c.size()); },
      [&] { c.Send(two, c.rank(), 0); },
      [&] { c.Recv(two, c.rank(), 0); },
      [&] { c.Send(two, -1, 0); },
  };
  for (const auto& call : wrong) {
    CommError::Kind kind{};
    if (std::string problem = ExpectCommError(call, seconds(1), &kind); !problem.empty()) {
      return "call " + std::to_string(&call - wrong) + ": " + problem;
    }
    REQUIRE(kind == CommError::Kind::kUsage);
  }
  c.Barrier();  // the group is as good as before
  return "";
}

std::string ClosesInOrder(Comm& c) {
  at::Tensor t = at::ones({100000});
  c.AllReduce(t, Reduce::kSum)->Wait();
  Status closed = c.Close();
  return closed ? "" : closed.error().message;
}

// ---- failing ---------------------------------------------------------------------------------------------------

std::string SilentPeerEndsAtTheDeadline(Comm& c) {
  at::Tensor t = at::ones({10});
  if (c.rank() == c.size() - 1) {
    // Comes back when the others have given up: its own call must not hang either.
    std::this_thread::sleep_for(milliseconds(900));
    return ExpectCommError([&] { c.AllReduce(t, Reduce::kSum, {milliseconds(300), "late"})->Wait(); }, seconds(3));
  }
  std::string message;
  CommError::Kind kind{};
  std::string problem = ExpectCommError([&] { c.AllReduce(t, Reduce::kSum, {milliseconds(300), "the sum"})->Wait(); },
                                        seconds(3), &kind, &message);
  if (!problem.empty()) {
    return problem;
  }
  // Another rank's deadline may pass first and close the connections.
  REQUIRE(kind == CommError::Kind::kDeadline || kind == CommError::Kind::kPeerLost);
  REQUIRE(message.find("AllReduce 'the sum'") != std::string::npos);
  REQUIRE(message.find("rank " + std::to_string(c.rank()) + " of " + std::to_string(c.size())) != std::string::npos);
  REQUIRE(kind == CommError::Kind::kPeerLost || message.find("300 ms") != std::string::npos);
  REQUIRE(message.find("rank " + std::to_string(c.size() - 1) + " ") != std::string::npos);  // who is missing
  return ExpectCommError([&] { c.Barrier(); }, seconds(1));                                  // broken for good
}

std::string SilentSenderEndsAtTheDeadline(Comm& c) {
  if (c.rank() != 0) {
    std::this_thread::sleep_for(milliseconds(800));
    return "";
  }
  at::Tensor t = at::ones({10});
  CommError::Kind kind{};
  std::string problem =
      ExpectCommError([&] { c.Recv(t, 1, 3, {milliseconds(200), "activations"})->Wait(); }, seconds(3), &kind);
  REQUIRE(kind == CommError::Kind::kDeadline);
  return problem;
}

// Long before the deadline, and with both calls in the message.
std::string DifferentCallsFail(Comm& c) {
  at::Tensor t = at::ones({12});
  std::string message;
  std::string problem = ExpectCommError(
      [&] {
        if (c.rank() == 0) {
          c.Broadcast(t, 0, {seconds(20), "weights"})->Wait();
          c.Barrier({seconds(20), "after"});
        } else {
          c.AllReduce(t, Reduce::kSum, {seconds(20), "gradients"})->Wait();
        }
      },
      seconds(10), nullptr, &message);
  REQUIRE(!problem.empty() || message.find("the ranks make different calls: ") != std::string::npos);
  REQUIRE(!problem.empty() || message.find("Broadcast 'weights'") != std::string::npos);
  REQUIRE(!problem.empty() || message.find("AllReduce 'gradients'") != std::string::npos);
  return problem;
}

// The same operation on as many bytes for another unit would mix their numbers without a word.
std::string DifferentLabelsFail(Comm& c) {
  at::Tensor t = at::ones({12});
  std::string message;
  std::string problem = ExpectCommError(
      [&] { c.AllReduce(t, Reduce::kSum, {seconds(20), c.rank() == 0 ? "reduce block.1" : "reduce block.2"})->Wait(); },
      seconds(10), nullptr, &message);
  REQUIRE(!problem.empty() || message.find("the ranks make different calls: ") != std::string::npos);
  return problem;
}

std::string DifferentLengthsFail(Comm& c) {
  at::Tensor t = at::ones({c.rank() == 0 ? 10 : 1000});
  std::string message;
  std::string problem =
      ExpectCommError([&] { c.AllReduce(t, Reduce::kSum, {seconds(20), ""})->Wait(); }, seconds(10), nullptr, &message);
  REQUIRE(!problem.empty() || message.find("the ranks make different calls: ") != std::string::npos);
  return problem;
}

std::string AbortFailsThePeersAtOnce(Comm& c) {
  at::Tensor t = at::ones({10});
  c.AllReduce(t, Reduce::kSum)->Wait();
  if (c.rank() == 0) {
    c.Abort();
    c.Abort();
  }
  CommError::Kind kind{};
  std::string problem =
      ExpectCommError([&] { c.AllReduce(t, Reduce::kSum, {seconds(60), ""})->Wait(); }, seconds(5), &kind);
  REQUIRE(!problem.empty() || kind == (c.rank() == 0 ? CommError::Kind::kAborted : CommError::Kind::kPeerLost));
  return problem;
}

std::string AbortWakesItsOwnWaiter(Comm& c) {
  if (c.rank() != 0) {
    return ExpectCommError([&] { c.Recv(at::ones({1}), 0, 1, {seconds(60), ""})->Wait(); }, seconds(5));
  }
  // Two waits of different kinds, ended by another thread.
  at::Tensor t = at::ones({10});
  WorkPtr sum = c.AllReduce(t, Reduce::kSum, {seconds(60), ""});
  WorkPtr message = c.Recv(at::ones({1}), 1, 2, {seconds(60), ""});
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    c.Abort();
  });
  CommError::Kind kind{};
  std::string problem = ExpectCommError([&] { message->Wait(); }, seconds(5), &kind);
  other.join();
  REQUIRE(!problem.empty() || kind == CommError::Kind::kAborted);
  return problem.empty() ? ExpectCommError([&] { sum->Wait(); }, seconds(1)) : problem;
}

std::string CloseReportsAnAbsentPeer(Comm& c) {
  if (c.rank() == 0) {
    std::this_thread::sleep_for(milliseconds(600));
    return "";
  }
  Status closed = c.Close(milliseconds(200));
  return closed ? "Close succeeded without rank 0" : "";
}

}  // namespace

std::string ExpectCommError(const std::function<void()>& call, milliseconds limit, CommError::Kind* kind,
                            std::string* message) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const CommError& e) {
    if (kind != nullptr) {
      *kind = e.kind();
    }
    if (message != nullptr) {
      *message = e.what();
    }
    const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
    return took <= limit ? "" : "took " + std::to_string(took.count()) + " ms: " + e.what();
  }
  return "no CommError";
}

const std::vector<ConformanceCase>& HealthyCases() {
  static const std::vector<ConformanceCase> cases = {
      {"AllGather", AllGather},
      {"AllGatherInPlace", AllGatherInPlace},
      {"ReduceScatter", ReduceScatter},
      {"AllReduce", AllReduce},
      {"SumsOfIntegersWrap", SumsOfIntegersWrap},
      {"AllToAll", AllToAll},
      {"Broadcast", Broadcast},
      {"SendAndRecv", SendAndRecv},
      {"ManyCallsInFlight", ManyCallsInFlight},
      {"DroppedWorkStillHappens", DroppedWorkStillHappens},
      {"Split", Split},
      {"MeshDimensions", MeshDimensions},
      {"CountsPayload", CountsPayload},
      {"LeavesVersionCountersAlone", LeavesVersionCountersAlone},
      {"RefusesWrongArguments", RefusesWrongArguments},
      {"ClosesInOrder", ClosesInOrder},
  };
  return cases;
}

const std::vector<ConformanceCase>& FailingCases() {
  static const std::vector<ConformanceCase> cases = {
      {"SilentPeerEndsAtTheDeadline", SilentPeerEndsAtTheDeadline},
      {"SilentSenderEndsAtTheDeadline", SilentSenderEndsAtTheDeadline},
      {"DifferentCallsFail", DifferentCallsFail},
      {"DifferentLengthsFail", DifferentLengthsFail},
      {"DifferentLabelsFail", DifferentLabelsFail},
      {"AbortFailsThePeersAtOnce", AbortFailsThePeersAtOnce},
      {"AbortWakesItsOwnWaiter", AbortWakesItsOwnWaiter},
      {"CloseReportsAnAbsentPeer", CloseReportsAnAbsentPeer},
  };
  return cases;
}

}  // namespace trainyard::dist
