// The C interface of our Rust crate (src/lib.rs), which holds the Hugging Face tokenizers. Every text is UTF-8 with a
// size. What comes out belongs to the caller until the ty_free_* of its type. A call that returns false, or no
// tokenizer, has put one line into `error`, which is to be freed as well; it has given out nothing else. A panic of the
// crate is such an error. Thread-safety: any thread; a tokenizer may be used by many threads at once until ty_close.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct TyTokenizer;

struct TyText {
  char* data;
  size_t size;
};

struct TyTokens {
  uint32_t* ids;
  size_t* spans;  // first byte and the one behind the last of each token in the text; null unless asked for
  size_t size;
};

// From the text of a tokenizer.json. Its truncation and padding are switched off. Null with `error`.
TyTokenizer* ty_open(const char* json, size_t size, TyText* error);
void ty_close(TyTokenizer* tokenizer);

// `frame`: with the tokens that the file's post-processor puts around a text. `spans`: also where each token lies.
bool ty_encode(const TyTokenizer* tokenizer, const char* text, size_t size, bool frame, bool spans, TyTokens* out,
               TyText* error);
bool ty_decode(const TyTokenizer* tokenizer, const uint32_t* ids, size_t size, bool skip_special, TyText* out,
               TyText* error);

// One more than the largest id.
bool ty_vocabulary(const TyTokenizer* tokenizer, uint64_t* out, TyText* error);
// -1: no such token.
int64_t ty_id_of(const TyTokenizer* tokenizer, const char* token, size_t size);
// Empty: no such id.
bool ty_token_of(const TyTokenizer* tokenizer, uint32_t id, TyText* out, TyText* error);

void ty_free_text(TyText text);
void ty_free_tokens(TyTokens tokens);

}  // extern "C"
