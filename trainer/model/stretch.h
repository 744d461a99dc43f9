// The autograd function of a stretch of a block that ends in linear layers: something cheap in front of them, such as a
// norm, which is computed again in backward, and the products of its value. Private to the room.
//
// A front has
//   at::Tensor Value(inputs, statistics)      its value. Without statistics it makes them, if it has any; given the
//                                             ones that it made, the same bits
//   variable_list Grad(d, inputs, statistics) the inputs' gradients from that of the value, which it may overwrite
//   bool kKeepsInput                          false: nothing of the inputs is kept unless a product's gradient wants it
// Thread-safety: functions of their arguments.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>
#include <vector>

#include "trainer/model/linear.h"

namespace trainyard::model {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A result whose value nobody reads: one zero, seen [rows, columns] times.
inline at::Tensor NoValue(int64_t rows, int64_t columns, const at::Tensor& like) {
  return at::zeros({1, 1}, like.options()).expand({rows, columns});
}

// The tensors of linear layers one after another, and the rest of them; and back.
inline variable_list Operands(const std::vector<Linear>& linears) {
  variable_list all;
  for (const Linear& l : linears) {
    for (const at::Tensor& t : {l.weight, l.bias, l.down, l.up}) {
      if (t.defined()) all.push_back(t);
    }
  }
  return all;
}
inline std::vector<LinearForm> Forms(const std::vector<Linear>& linears) {
  std::vector<LinearForm> forms;
  for (const Linear& l : linears) {
    forms.push_back(l.form);
    forms.back().biased = l.bias.defined();
    forms.back().adapted = l.adapted();
  }
  return forms;
}

template <typename Front>
struct StretchKept final : torch::CustomClassHolder {
  StretchKept(Front f, std::vector<LinearForm> l, size_t n) : front(std::move(f)), forms(std::move(l)), inputs(n) {}
  const Front front;
  const std::vector<LinearForm> forms;
  const size_t inputs;
};

template <typename Front>
class StretchFunction : public torch::autograd::Function<StretchFunction<Front>> {
  using Kept = StretchKept<Front>;

 public:
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, at::TensorList operands,
                               const c10::intrusive_ptr<Kept>& kept, bool value) {
    variable_list given = inputs.vec(), statistics, products;
    const std::vector<Linear> linears = LinearsOf(kept->forms, operands.vec(), 0);
    const at::Tensor x = value ? kept->front.Value(given, statistics) : at::Tensor();
    for (const Linear& l : linears) {
      products.push_back(value ? Product(l, x) : NoValue(given[0].size(0), l.outputs(), given[0]));
    }
    if constexpr (!Front::kKeepsInput) {
      if (!WantsInput(linears)) given[0] = at::Tensor();
    }
    given.insert(given.end(), operands.begin(), operands.end());
    given.insert(given.end(), statistics.begin(), statistics.end());
    ctx->save_for_backward(std::move(given));
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return products;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const size_t n = kept->inputs;
    const std::vector<Linear> linears = LinearsOf(kept->forms, saved, n);
    size_t place = n + Operands(linears).size();  // behind the last one's operands
    const auto tensor = [&](size_t index) { return saved.begin() + static_cast<std::ptrdiff_t>(index); };
    const variable_list inputs(tensor(0), tensor(n));
    variable_list statistics(tensor(place), saved.end()), result(place + 2);
    bool below = false;
    for (size_t i = 0; i < n; ++i) below = below || ctx->needs_input_grad(i);
    at::Tensor x;
    for (size_t i = linears.size(); i-- > 0;) {
      const Linear& l = linears[i];
      place -= Operands({l}).size();
      const LinearWants wants = WantsAt(ctx, l, place);
      if (wants.input() && !x.defined()) x = kept->front.Value(inputs, statistics);
      LinearGradients d = GradientsOf(l, x, grads[i], wants);
      size_t to = place;
      result[to++] = d.weight;
      if (l.bias.defined()) result[to++] = d.bias;
      if (l.adapted()) result[to++] = d.down, result[to++] = d.up;
    }
    x.reset();  // before its gradient, which is as large
    if (!below) return result;
    at::Tensor d_x;
    for (size_t i = linears.size(); i-- > 0;) {
      const at::Tensor part = GradientsOf(linears[i], {}, grads[i], {.x = true}).x;
      d_x = d_x.defined() ? d_x.add_(part) : part;
      grads[i].reset();
    }
    variable_list d_inputs = kept->front.Grad(std::move(d_x), inputs, statistics);
    for (size_t i = 0; i < n; ++i) result[i] = std::move(d_inputs[i]);
    return result;
  }

 private:
  static std::vector<Linear> LinearsOf(const std::vector<LinearForm>& forms, const variable_list& tensors,
                                       size_t place) {
    std::vector<Linear> linears;
    for (const LinearForm& form : forms) {
      Linear l;
      l.form = form;
      l.weight = tensors[place++];
      if (form.biased) l.bias = tensors[place++];
      if (form.adapted) l.down = tensors[place++], l.up = tensors[place++];
      linears.push_back(std::move(l));
    }
    return linears;
  }
  static bool WantsInput(const std::vector<Linear>& linears) {
    for (const Linear& l : linears) {
      if (l.weight.requires_grad() || (l.adapted() && (l.down.requires_grad() || l.up.requires_grad()))) return true;
    }
    return false;
  }
  // Of the linear layer whose operands begin at `place` of the function's tensors.
  static LinearWants WantsAt(AutogradContext* ctx, const Linear& l, size_t place) {
    LinearWants wants;
    wants.weight = ctx->needs_input_grad(place++);
    if (l.bias.defined()) wants.bias = ctx->needs_input_grad(place++);
    if (l.adapted()) wants.down = ctx->needs_input_grad(place++), wants.up = ctx->needs_input_grad(place++);
    return wants;
  }
};

// value false: gradients as ever, but the products are zeros that were not computed.
template <typename Front>
std::vector<at::Tensor> Stretched(Front front, const variable_list& inputs, const std::vector<Linear>& linears,
                                  bool value = true) {
  auto kept = c10::make_intrusive<StretchKept<Front>>(std::move(front), Forms(linears), inputs.size());
  const variable_list operands = Operands(linears);
  return StretchFunction<Front>::apply(at::TensorList(inputs), at::TensorList(operands), kept, value);
}

}  // namespace trainyard::model
