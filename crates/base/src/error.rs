//! The one public error: a prescriptive kind, a catalogued code, and context pairs that name the
//! table, file, page, value or limit concerned.

use crate::Code;
use std::{fmt, sync::Arc};

/// A result with an error of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller can do about an error.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A version newer than the snapshot: roll back and repeat the transaction.
    Conflict,
    /// Chosen as the victim of a deadlock: roll back and repeat.
    Deadlock,
    /// A lock was not granted in time: repeat the statement or give up.
    LockTimeout,
    /// A unique key exists already.
    Duplicate,
    /// The disk or a limit that space bounds is full: free space and repeat.
    Full,
    /// Writes have stopped after a failed write or sync, or the database is open read-only.
    ReadOnly,
    /// The call is wrong: the message says which value and which limit.
    Invalid,
    /// No such table, index, column or row.
    NotFound,
    /// Bytes on storage are damaged.
    Corrupt,
    /// Another process or session holds the resource.
    Busy,
    /// The files have another format version.
    Version,
    /// The operating system refused an operation.
    Io,
    /// The statement was cancelled.
    Cancelled,
    /// A bug in the engine.
    Internal,
}

/// An error of the engine. Cheap to clone.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    code: Code,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this code, with no context yet.
    pub fn new(code: Code) -> Error {
        Error { inner: Arc::new(Inner { code, context: Vec::new(), source: None }) }
    }

    /// Adds a context pair, such as ("page", 17).
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Error {
        Arc::make_mut(&mut self.inner).context.push((name, value.to_string()));
        self
    }

    /// Adds the error that led to this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Arc::make_mut(&mut self.inner).source = Some(Arc::new(source));
        self
    }

    /// A bug: something impossible has happened.
    pub fn internal(what: impl fmt::Display) -> Error {
        Error::new(Code::Internal).with("what", what)
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.inner.code.kind()
    }

    /// The catalogued code.
    pub fn code(&self) -> Code {
        self.inner.code
    }

    /// The value of a context pair.
    pub fn context(&self, name: &str) -> Option<&str> {
        self.inner.context.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.inner.code.text())?;
        for (i, (name, value)) in self.inner.context.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { " (" } else { ", " })?;
        }
        if !self.inner.context.is_empty() {
            f.write_str(")")?;
        }
        write!(f, "; {} [{}]", self.inner.code.next_step(), self.inner.code.name())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}
