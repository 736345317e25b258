//! Values and errors as C sees them, and the fence that keeps panics on the Rust side.

use evenkeel::{Code, Error, Kind, ValueRef};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes owned by another side.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EkBytes {
    /// Their address; may be null if there are none.
    pub ptr: *const u8,
    /// Their number.
    pub len: usize,
}

impl EkBytes {
    /// No bytes.
    pub const NONE: EkBytes = EkBytes { ptr: std::ptr::null(), len: 0 };

    /// Of a slice.
    pub fn of(bytes: &[u8]) -> EkBytes {
        EkBytes { ptr: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// The bytes are there for as long as the result is used.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: by contract of the caller.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// # Safety
    /// As `get`.
    ///
    /// # Errors
    /// `NameInvalid` for bytes that are not UTF-8.
    pub unsafe fn text<'a>(self) -> Result<&'a str, Error> {
        // SAFETY: by contract of the caller.
        let bytes = unsafe { self.get() };
        // Names are short, and each call looks one up.
        if bytes.is_ascii() {
            // SAFETY: ASCII is UTF-8.
            return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        std::str::from_utf8(bytes).map_err(|_| Error::new(evenkeel::Code::NameInvalid))
    }
}

/// NULL.
pub const EK_NULL: u8 = 0;
/// A signed number in `bits`.
pub const EK_INT: u8 = 1;
/// An unsigned number in `bits`.
pub const EK_UINT: u8 = 2;
/// A float, its bits in `bits`.
pub const EK_FLOAT: u8 = 3;
/// Bytes.
pub const EK_BYTES: u8 = 4;

/// A value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EkValue {
    /// One of `EK_*`.
    pub kind: u8,
    /// Of a number.
    pub bits: u64,
    /// Of bytes.
    pub bytes: EkBytes,
}

impl EkValue {
    /// Makes it from the engine's value. This interface has no decimals, dates and times.
    pub fn of(value: ValueRef<'_>) -> EkValue {
        let plain = |kind, bits| EkValue { kind, bits, bytes: EkBytes::NONE };
        let bytes = |b: &[u8]| EkValue { kind: EK_BYTES, bits: 0, bytes: EkBytes::of(b) };
        match value {
            ValueRef::Int(i) => plain(EK_INT, i as u64),
            ValueRef::UInt(u) => plain(EK_UINT, u),
            ValueRef::Bool(b) => plain(EK_UINT, u64::from(b)),
            ValueRef::Float(f) => plain(EK_FLOAT, f.to_bits()),
            ValueRef::Bytes(b) => bytes(b),
            ValueRef::Text(t) => bytes(t.as_bytes()),
            ValueRef::Date(d) => plain(EK_INT, i64::from(d) as u64),
            ValueRef::DateTime(t) => plain(EK_INT, t as u64),
            ValueRef::Null | ValueRef::Decimal(..) => plain(EK_NULL, 0),
        }
    }

    /// # Safety
    /// Its bytes are there for as long as the result is used.
    pub unsafe fn get<'a>(&self) -> ValueRef<'a> {
        match self.kind {
            EK_INT => ValueRef::Int(self.bits as i64),
            EK_UINT => ValueRef::UInt(self.bits),
            EK_FLOAT => ValueRef::Float(f64::from_bits(self.bits)),
            // SAFETY: by contract of the caller.
            EK_BYTES => ValueRef::Bytes(unsafe { self.bytes.get() }),
            _ => ValueRef::Null,
        }
    }
}

/// The values of a short row or of a key are stored inline.
pub type Values<'a> = SmallVec<[ValueRef<'a>; 8]>;

/// # Safety
/// `ptr` points to `len` values (or is null), whose bytes are there while the result is used.
pub unsafe fn values<'a>(ptr: *const EkValue, len: usize) -> Values<'a> {
    if ptr.is_null() {
        return Values::new();
    }
    // SAFETY: by contract of the caller.
    unsafe { std::slice::from_raw_parts(ptr, len) }.iter().map(|v| unsafe { v.get() }).collect()
}

/// # Safety
/// `ptr` points to `len` things (or is null), which are there while the result is used.
pub(crate) unsafe fn slice<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if ptr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: by contract of the caller.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

/// The kind of an error: the engine's kinds by number.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EkKind {
    /// None.
    Ok = 0,
    /// A row is newer than the snapshot.
    Conflict = 1,
    /// The transaction was rolled back.
    Deadlock = 2,
    /// The statement was rolled back.
    LockTimeout = 3,
    /// A unique key is taken.
    Duplicate = 4,
    /// The disk or a memory budget is full.
    Full = 5,
    /// Writes have stopped, or the database or transaction is read-only.
    ReadOnly = 6,
    /// The request is wrong.
    Invalid = 7,
    /// The requested object does not exist.
    NotFound = 8,
    /// Damage on disk.
    Corrupt = 9,
    /// Another process, or a schema change, holds the resource.
    Busy = 10,
    /// A newer format.
    Version = 11,
    /// A bug.
    Internal = 12,
    /// The statement was killed.
    Cancelled = 13,
    /// A setting is wrong, or does not fit the database.
    Setting = 14,
    /// A table or an index is newer than the snapshot.
    TooNew = 15,
    /// Files cannot be opened, read or written.
    Io = 16,
}

fn kind(error: &Error) -> EkKind {
    if matches!(error.code(), Code::BadPageSize | Code::PageSizeMismatch | Code::OptionOutOfRange) {
        return EkKind::Setting;
    }
    if matches!(error.code(), Code::TableTooNew | Code::IndexTooNew) {
        return EkKind::TooNew;
    }
    match error.kind() {
        Kind::Cancelled => EkKind::Cancelled,
        Kind::Conflict => EkKind::Conflict,
        Kind::Deadlock => EkKind::Deadlock,
        Kind::LockTimeout => EkKind::LockTimeout,
        Kind::Duplicate => EkKind::Duplicate,
        Kind::Full => EkKind::Full,
        Kind::ReadOnly => EkKind::ReadOnly,
        Kind::Invalid => EkKind::Invalid,
        Kind::NotFound => EkKind::NotFound,
        Kind::Corrupt => EkKind::Corrupt,
        Kind::Busy => EkKind::Busy,
        Kind::Version => EkKind::Version,
        Kind::Io => EkKind::Io,
        _ => EkKind::Internal,
    }
}

/// Bytes of an error's text, its ending 0 counted.
pub const EK_TEXT: usize = 512;
/// Bytes of an index's name, its ending 0 counted.
pub const EK_NAME: usize = 256;

/// An error.
#[repr(C)]
pub struct EkError {
    /// Its kind.
    pub kind: EkKind,
    /// Its code: the index in `Code::ALL`, which the plugin's `errors.def` follows.
    pub code: i32,
    /// For a duplicate: the name of the index, "primary" for the primary key. For a foreign key:
    /// its name, a tab and the table that has it. Ends with 0.
    pub index: [u8; EK_NAME],
    /// The message; ends with 0.
    pub text: [u8; EK_TEXT],
}

/// Copies as many whole characters of `text` as fit, and an ending 0.
fn copy(text: &str, to: &mut [u8]) {
    let room = to.len().saturating_sub(1).min(text.len());
    let end = (0..=room).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
    to[end] = 0;
}

/// The error of a code without context, as a failing function reports it; none for a number that is
/// not a code. Tests go through all codes.
///
/// # Safety
/// `error` points to an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_error_of_code(code: i32, error: *mut EkError) {
    let named = usize::try_from(code).ok().and_then(|place| Code::ALL.get(place));
    // SAFETY: by contract of the caller.
    unsafe { fence(error, (), || named.map_or(Ok(()), |code| Err(Error::new(*code)))) }
}

/// Reports that an existing row has the key of an index (none: the primary key), without composing
/// a message: for callers that meet many such rows.
///
/// # Safety
/// `error` points to an error.
pub unsafe fn say_taken(error: *mut EkError, index: Option<&str>) {
    // SAFETY: by contract of the caller.
    if let Some(error) = unsafe { error.as_mut() } {
        error.kind = EkKind::Duplicate;
        error.code = Code::DuplicateKey as i32;
        copy(index.unwrap_or("primary"), &mut error.index);
        copy(Code::DuplicateKey.text(), &mut error.text);
    }
}

/// Runs `body` of a function without an error argument; returns its result, or `failed` after a
/// panic.
pub fn catch<R>(failed: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}

/// The index of a duplicate; the foreign key of an error, a tab and the table that has the key.
fn place(error: &Error) -> String {
    if let Some(index) = error.context("index") {
        return index.to_string();
    }
    let table = || error.context("child").or_else(|| error.context("table")).unwrap_or("");
    error.context("constraint").map_or_else(String::new, |key| format!("{key}\t{}", table()))
}

/// Runs `body`; an error or a panic goes to `error`, and `failed` is returned.
///
/// # Safety
/// `error` points to an error.
pub unsafe fn fence<R>(
    error: *mut EkError,
    failed: R,
    body: impl FnOnce() -> Result<R, Error>,
) -> R {
    let (kind, code, text, index) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(done)) => return done,
        Ok(Err(e)) => (kind(&e), e.code(), e.to_string(), place(&e)),
        Err(_) => {
            let text = "the engine panicked; see the log".to_string();
            (EkKind::Internal, Code::Internal, text, String::new())
        }
    };
    // SAFETY: by contract of the caller.
    if let Some(error) = unsafe { error.as_mut() } {
        error.kind = kind;
        error.code = code as i32;
        copy(&index, &mut error.index);
        copy(&text, &mut error.text);
    }
    failed
}
