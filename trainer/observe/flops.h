// Model FLOP/s utilisation. Thread-safety: pure functions.
#pragma once

namespace trainyard::observe {

// Floating-point operations that forward and backward of one token need: 6 P + 12 L s w, P being the parameters that
// are multiplied with (all but an untied embedding table, which is only looked up), L layers, s the sequence length and
// w the width of attention (Chowdhery et al., "PaLM", 2022, appendix B). Recomputation does not count, causal attention
// counts in full.
inline double FlopsPerToken(double parameters, double layers, double sequence, double width) {
  return 6 * parameters + 12 * layers * sequence * width;
}

// The part of the peak that a step used: flops per token x tokens per second of all ranks / (ranks x peak of one).
inline double Mfu(double flops_per_token, double tokens_per_second, double ranks, double peak_flops) {
  return flops_per_token * tokens_per_second / (ranks * peak_flops);
}

}  // namespace trainyard::observe
