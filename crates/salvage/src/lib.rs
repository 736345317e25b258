//! What a directory holds, as SQL, CSV or a new database.
//!
//! `dump` reads a whole directory through the engine. `salvage` reads a damaged one without the
//! engine: it needs only the formats of docs/format. Both change no byte of the directory. Callers:
//! the command, tests.
#![forbid(unsafe_code)]

mod catalog;
mod definition;
mod dump;
mod files;
mod foreign;
mod foreign_sql;
mod leaves;
mod log;
mod outcome;
mod picture;
mod redo;
mod report;
mod salvage;
mod source;
mod space;
mod sql;
mod target;
mod view;
mod weights;

pub use dump::{Dump, Dumped, exit_code as dump_exit_code};
pub use files::Format;
pub use report::{LostRange, Report, TableReport};
pub use salvage::{To, salvage};
pub use view::View;
