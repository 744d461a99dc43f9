#include "trainer/model/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

namespace trainyard::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs besides the input; a capsule, since a context holds nothing else.
struct Kept final : torch::CustomClassHolder {
  Kept(engine::ParameterHost& h, Stretch s, at::TensorList p) : host(h), stretch(std::move(s)), parameters(p.vec()) {}
  engine::ParameterHost& host;
  const Stretch stretch;
  const variable_list parameters;
};

// The second run, until its own backward is over.
class SecondRun {
 public:
  explicit SecondRun(engine::ParameterHost& host) : host_(host) { host_.BeginRecompute(); }
  ~SecondRun() { host_.EndRecompute(); }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  engine::ParameterHost& host_;
};

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList /*parameters*/,
                            const c10::intrusive_ptr<Kept>& kept) {
    ctx->save_for_backward({x});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->stretch(x, Run::kFirst);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const SecondRun second(kept->host);
    const at::Tensor x = ctx->get_saved_variables()[0].detach().set_requires_grad(ctx->needs_input_grad(0));
    variable_list inputs;
    std::vector<size_t> places;  // of the inputs among x and the parameters
    const auto want = [&](size_t place, const at::Tensor& input) {
      if (!ctx->needs_input_grad(place)) return;
      places.push_back(place);
      inputs.push_back(input);
    };
    want(0, x);
    for (size_t i = 0; i < kept->parameters.size(); ++i) want(1 + i, kept->parameters[i]);
    at::Tensor y;
    {
      at::AutoGradMode with_graph(true);
      y = kept->stretch(x, Run::kAgain);
    }
    variable_list found = torch::autograd::grad({std::move(y)}, inputs, {std::move(grads[0])},
                                                /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                                /*allow_unused=*/true);
    variable_list result(2 + kept->parameters.size());  // the last one is `kept`
    for (size_t i = 0; i < found.size(); ++i) result[places[i]] = std::move(found[i]);
    return result;
  }
};

}  // namespace

at::Tensor Recomputed(engine::ParameterHost& host, Stretch stretch, const at::Tensor& x, at::TensorList parameters) {
  if (!at::GradMode::is_enabled()) return stretch(x, Run::kFirst);
  return RecomputeFunction::apply(x, parameters, c10::make_intrusive<Kept>(host, std::move(stretch), parameters));
}

}  // namespace trainyard::model
