#include "trainer/model/linear.h"

#include "trainer/model/row_product.h"
#include "trainer/model/stretch.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::model {
namespace {

// The matrix in the type that computes.
at::Tensor Matrix(const Linear& l, at::ScalarType type) {
  return l.packed() ? quant::Nf4Dequantise(l.weight, l.form.packed_row, type) : l.weight;
}

// Nothing stands before the products.
struct NoFront {
  static constexpr bool kKeepsInput = false;  // but where a product's gradient wants it
  at::Tensor Value(const variable_list& inputs, variable_list& /*statistics*/) const { return inputs[0]; }
  variable_list Grad(at::Tensor d, const variable_list& /*inputs*/, const variable_list& /*statistics*/) const {
    return {std::move(d)};
  }
};

// What the adapter is given.
at::Tensor Low(const Linear& l, const at::Tensor& dropped) { return dropped.mm(l.down.t()); }

}  // namespace

int64_t Linear::outputs() const {
  if (!form.input_first) return weight.size(0);
  return packed() ? form.packed_row : weight.size(1);
}

at::Tensor Product(const Linear& l, const at::Tensor& x) {
  at::Tensor y;
  if (!l.form.input_first) {
    y = l.packed() ? PackedLinearProduct(x, l.weight, l.bias) : LinearProduct(x, l.weight, l.bias);
  } else {
    const at::Tensor matrix = Matrix(l, x.scalar_type());
    y = l.bias.defined() ? AffineProduct(l.bias, x, matrix) : x.mm(matrix);
  }
  if (l.adapted()) y.addmm_(Low(l, Drop(x, l.form.dropout)).mul_(l.form.scale), l.up.t());
  return y;
}

LinearGradients GradientsOf(const Linear& l, const at::Tensor& x, const at::Tensor& g, const LinearWants& wants) {
  LinearGradients d;
  if (wants.weight) d.weight = l.form.input_first ? x.t().mm(g) : g.t().mm(x);
  if (wants.bias) d.bias = g.sum(0);
  if (wants.x) {
    const at::Tensor matrix = Matrix(l, g.scalar_type());
    d.x = g.mm(l.form.input_first ? matrix.t() : matrix);
  }
  if (!l.adapted() || !(wants.x || wants.down || wants.up)) return d;
  const at::Tensor d_low = g.mm(l.up).mul_(l.form.scale);
  if (wants.input()) {
    const at::Tensor dropped = Drop(x, l.form.dropout);
    if (wants.down) d.down = d_low.t().mm(dropped);
    if (wants.up) d.up = g.t().mm(Low(l, dropped).mul_(l.form.scale));
  }
  if (!wants.x) return d;
  if (l.form.dropout.rate > 0) {
    d.x.add_(Drop(d_low.mm(l.down), l.form.dropout));
  } else {
    d.x.addmm_(d_low, l.down);
  }
  return d;
}

std::vector<at::Tensor> Products(const at::Tensor& x, const std::vector<Linear>& linears) {
  bool plain = true;
  for (const Linear& l : linears) plain = plain && l.plain();
  if (!plain) return Stretched(NoFront{}, {x}, linears);
  std::vector<at::Tensor> products;
  for (const Linear& l : linears) products.push_back(Product(l, x));
  return products;
}

at::Tensor Apply(const Linear& linear, const at::Tensor& x) { return Products(x, {linear})[0]; }

}  // namespace trainyard::model
