//! The Hugging Face tokenizers behind the C interface that crate.h declares; what each function promises stands there.
//! Nothing unwinds across the border: a panic becomes an error like any other. What is handed out belongs to the caller
//! until the matching `ty_free_*`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice, str};
use tokenizers::Tokenizer;

/// Text of a caller or for one; not closed by a zero byte.
#[repr(C)]
pub struct TyText {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct TyTokens {
    ids: *mut u32,
    /// Two per token, the first byte and the one behind the last; null where nobody asked.
    spans: *mut usize,
    size: usize,
}

fn give<T>(values: Vec<T>) -> (*mut T, usize) {
    let size = values.len();
    (Box::into_raw(values.into_boxed_slice()) as *mut T, size)
}

unsafe fn take_back<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(data, size)));
    }
}

fn give_text(text: String) -> TyText {
    let (data, size) = give(text.into_bytes());
    TyText { data, size }
}

unsafe fn borrow<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, String> {
    str::from_utf8(borrow(data, size)).map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to()))
}

/// Runs `work`; its error or panic goes to `error`. True when it went well.
unsafe fn guarded(error: *mut TyText, work: impl FnOnce() -> Result<(), String>) -> bool {
    let problem = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return true,
        Ok(Err(problem)) => problem,
        Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(what), _) => format!("the tokenizers library failed: {what}"),
            (None, Some(what)) => format!("the tokenizers library failed: {what}"),
            (None, None) => "the tokenizers library failed".to_string(),
        },
    };
    *error = give_text(problem);
    false
}

#[no_mangle]
pub unsafe extern "C" fn ty_open(json: *const u8, size: usize, error: *mut TyText) -> *mut Tokenizer {
    // The message of a panic reaches the caller; a second copy on standard error would only confuse.
    std::panic::set_hook(Box::new(|_| {}));
    let mut opened = ptr::null_mut();
    guarded(error, || {
        let mut tokenizer = Tokenizer::from_bytes(borrow(json, size)).map_err(|e| e.to_string())?;
        // Both are for batches of a model's inputs; a file is tokenized whole.
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        tokenizer.with_padding(None);
        opened = Box::into_raw(Box::new(tokenizer));
        Ok(())
    });
    opened
}

#[no_mangle]
pub unsafe extern "C" fn ty_close(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ty_encode(
    tokenizer: *const Tokenizer, data: *const u8, size: usize, frame: bool, spans: bool, out: *mut TyTokens,
    error: *mut TyText,
) -> bool {
    guarded(error, || {
        let text = text(data, size)?;
        let tokenizer = &*tokenizer;
        let encoded = if spans { tokenizer.encode(text, frame) } else { tokenizer.encode_fast(text, frame) };
        let encoded = encoded.map_err(|e| e.to_string())?;
        let (ids, count) = give(encoded.get_ids().to_vec());
        let places = if spans {
            give(encoded.get_offsets().iter().flat_map(|&(begin, end)| [begin, end]).collect::<Vec<usize>>()).0
        } else {
            ptr::null_mut()
        };
        *out = TyTokens { ids, spans: places, size: count };
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ty_decode(
    tokenizer: *const Tokenizer, ids: *const u32, size: usize, skip_special: bool, out: *mut TyText, error: *mut TyText,
) -> bool {
    guarded(error, || {
        *out = give_text((*tokenizer).decode(borrow(ids, size), skip_special).map_err(|e| e.to_string())?);
        Ok(())
    })
}

/// One more than the largest id: added tokens may lie behind a gap.
#[no_mangle]
pub unsafe extern "C" fn ty_vocabulary(tokenizer: *const Tokenizer, out: *mut u64, error: *mut TyText) -> bool {
    guarded(error, || {
        *out = (*tokenizer).get_vocab(true).values().max().map_or(0, |&largest| u64::from(largest) + 1);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ty_id_of(tokenizer: *const Tokenizer, token: *const u8, size: usize) -> i64 {
    let find = || text(token, size).ok().and_then(|token| (*tokenizer).token_to_id(token));
    catch_unwind(AssertUnwindSafe(find)).ok().flatten().map_or(-1, i64::from)
}

/// Empty where there is no such token.
#[no_mangle]
pub unsafe extern "C" fn ty_token_of(tokenizer: *const Tokenizer, id: u32, out: *mut TyText, error: *mut TyText) -> bool {
    guarded(error, || {
        *out = give_text((*tokenizer).id_to_token(id).unwrap_or_default());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ty_free_text(text: TyText) {
    take_back(text.data, text.size);
}

#[no_mangle]
pub unsafe extern "C" fn ty_free_tokens(tokens: TyTokens) {
    take_back(tokens.ids, tokens.size);
    take_back(tokens.spans, tokens.size * 2);
}
