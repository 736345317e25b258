//! A caller's request for a chunked table.

use evenkeel_format::chunks::TimeUnit;
use std::time::Duration;

/// How a table is to be cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunking {
    pub(crate) time: String,
    pub(crate) width: Duration,
    pub(crate) unit: Option<TimeUnit>,
    pub(crate) between: Option<(i64, i64)>,
    pub(crate) space: Option<(String, u32)>,
    pub(crate) retain: Option<Duration>,
}

impl Chunking {
    /// Chunks of `width` by the column `time`: a `Date`, a `DateTime`, or an integer with a unit.
    pub fn by(time: &str, width: Duration) -> Chunking {
        let (time, unit, between, space) = (time.to_string(), None, None, None);
        Chunking { time, width, unit, between, space, retain: None }
    }

    /// The unit of an integer time column, whose values count from 1970-01-01.
    #[must_use]
    pub fn unit(mut self, unit: TimeUnit) -> Chunking {
        self.unit = Some(unit);
        self
    }

    /// Cuts each span of times into `slots` chunks, by the hash of a column.
    #[must_use]
    pub fn space(mut self, column: &str, slots: u32) -> Chunking {
        self.space = Some((column.to_string(), slots));
        self
    }

    /// Times before `from`, and those from `to` on, get no chunks of their own: they go to one
    /// early and one late chunk. In the unit of the column; 2000-01-01 and 2100-01-01 at first.
    #[must_use]
    pub fn between(mut self, from: i64, to: i64) -> Chunking {
        self.between = Some((from, to));
        self
    }

    /// How long rows are kept: `expire_chunks` drops chunks that are older as a whole.
    #[must_use]
    pub fn retain(mut self, time: Duration) -> Chunking {
        self.retain = Some(time);
        self
    }
}
