//! The checked form of the flags: numbers with units, steps, patterns.

use crate::error::BenchError;
use crate::flags::Flags;
use crate::pattern::Patterns;
use crate::sql::without_password;
use std::path::PathBuf;

/// The operations of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// l.i0: create the tables and load them, primary key only.
    Load,
    /// l.x: create the secondary indexes.
    Index,
    /// l.i1 or l.i2: insert with the indexes in place.
    Insert,
    /// qR.N: queries while R rows per second and client are inserted.
    Query {
        /// Rows per second and client.
        rate: u64,
    },
    /// u: update random rows by primary key.
    Update,
    /// p: read random rows by primary key, one at a time.
    Read,
}

impl StepKind {
    /// True if queries or reads are the subject of the step.
    pub fn reads(self) -> bool {
        matches!(self, StepKind::Query { .. } | StepKind::Read)
    }
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name in output and JSON.
    pub name: String,
    /// Its operations.
    pub kind: StepKind,
    /// Rows per transaction.
    pub batch: usize,
    /// Rows per client, unless the step is timed.
    pub rows: u64,
    /// Length in seconds, if the step is timed.
    pub seconds: Option<f64>,
    /// Repeat the step as an open loop at this share of the rate reached.
    pub open_loop: Option<f64>,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the store.
    pub dir: PathBuf,
    /// The user did not name the directory: remove it at the end.
    pub temporary: bool,
    /// Number of clients.
    pub clients: usize,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Durability: 0, 1 or 2.
    pub durability: u8,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Delete as many rows as are inserted, from l.i1 on.
    pub deletes: bool,
    /// Query by primary key instead of by index ranges.
    pub point_queries: bool,
    /// Insert patterns.
    pub patterns: Patterns,
    /// Seconds for which a snapshot is held in each step from l.i1 on.
    pub snapshot_seconds: Option<u64>,
    /// Seed of the rows and queries.
    pub seed: u64,
    /// Page size in bytes.
    pub page_size: u32,
    /// Bypass the page cache.
    pub direct_io: bool,
    /// Engine name.
    pub engine: String,
    /// File for the JSON.
    pub json: Option<PathBuf>,
    /// File for the report.
    pub report: Option<PathBuf>,
    /// The flags as given, for the JSON.
    pub settings: serde_json::Value,
}

/// Reads a count with a decimal suffix: 500k, 2M, 1.5G.
///
/// # Errors
/// Describes the invalid text.
pub fn count(text: &str) -> Result<u64, String> {
    number(text, 1000.0)
}

/// Reads a size in bytes with a 1024-based suffix: 4K, 256M, 1G.
///
/// # Errors
/// Describes the invalid text.
pub fn size(text: &str) -> Result<u64, String> {
    number(text, 1024.0)
}

fn number(text: &str, unit: f64) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => unit,
        "m" => unit * unit,
        "g" => unit * unit * unit,
        other => return Err(format!("'{text}': unknown suffix '{other}', one of k, M, G")),
    };
    let value: f64 = digits.parse().map_err(|_| format!("'{text}': not a number"))?;
    let all = value * factor;
    if !(0.0..1e18).contains(&all) || all.fract().abs() > 1e-6 {
        return Err(format!("'{text}': not a whole number below 10^18"));
    }
    Ok(all.round() as u64)
}

fn list<const N: usize>(text: &str, flag: &str) -> Result<[u64; N], BenchError> {
    let all: Result<Vec<u64>, String> = text.split(',').map(count).collect();
    all.map_err(|e| usage(flag, &e))?
        .try_into()
        .map_err(|_| usage(flag, &format!("'{text}': {N} numbers, separated by commas")))
}

fn usage(flag: &str, text: &str) -> BenchError {
    BenchError::Usage(format!("--{flag}: {text}"))
}

impl Flags {
    /// Checks the flags.
    ///
    /// # Errors
    /// `Usage` names the flag and its valid values.
    pub fn options(&self) -> Result<Options, BenchError> {
        let mut patterns = Patterns::NATURAL;
        for pattern in &self.pattern {
            patterns.set(pattern).map_err(|e| usage("pattern", &e))?;
        }
        let page_size = size(&self.page_size).map_err(|e| usage("page-size", &e))?;
        if ![4096, 8192, 16384].contains(&page_size) {
            return Err(usage("page-size", "4K, 8K or 16K"));
        }
        if self.durability > 2 {
            return Err(usage("durability", "0, 1 or 2"));
        }
        if !(1..=1000).contains(&self.clients) {
            return Err(usage("clients", "1 to 1000"));
        }
        if self.open_loop.is_some_and(|p| !(p > 0.0 && p <= 1000.0)) {
            return Err(usage("open-loop", "a percentage above 0"));
        }
        if !(1..=1_000_000).contains(&self.seconds) {
            return Err(usage("seconds", "1 to 1000000"));
        }
        let point_queries = match self.queries.as_str() {
            "range" => false,
            "pk" => true,
            other => return Err(usage("queries", &format!("'{other}': range or pk"))),
        };
        Ok(Options {
            dir: self.dir.clone().unwrap_or_else(|| PathBuf::from("evenkeel-bench")),
            temporary: self.dir.is_none(),
            clients: self.clients,
            memory: size(&self.memory).map_err(|e| usage("memory", &e))?,
            durability: self.durability,
            steps: self.parse_steps()?,
            deletes: self.deletes,
            point_queries,
            patterns,
            snapshot_seconds: self.snapshot_seconds,
            seed: self.seed,
            page_size: page_size as u32,
            direct_io: self.direct_io,
            engine: self.engine.clone(),
            json: self.json.clone(),
            report: self.report.clone(),
            settings: self.settings(&patterns),
        })
    }

    fn settings(&self, patterns: &Patterns) -> serde_json::Value {
        serde_json::json!({
            "dir": self.dir, "rows": self.rows, "clients": self.clients, "memory": self.memory,
            "durability": self.durability, "steps": self.steps, "rates": self.rates,
            "seconds": self.seconds, "batch": self.batch, "deletes": self.deletes,
            "queries": self.queries, "pattern": patterns.to_string(),
            "open_loop": self.open_loop, "snapshot_seconds": self.snapshot_seconds,
            "seed": self.seed, "page_size": self.page_size, "direct_io": self.direct_io,
            "engine": without_password(&self.engine),
        })
    }

    fn parse_steps(&self) -> Result<Vec<Step>, BenchError> {
        let [load, more] = list(&self.rows, "rows")?;
        let batch: [u64; 3] = list(&self.batch, "batch")?;
        if batch.iter().any(|b| !(1..=100_000).contains(b)) {
            return Err(usage("batch", "1 to 100000 rows per transaction"));
        }
        let mut steps = Vec::new();
        for text in self.steps.split(',') {
            let (name, seconds) = match text.trim().split_once(':') {
                Some((name, time)) => (name, Some(step_seconds(time)?)),
                None => (text.trim(), None),
            };
            let plain = |kind, batch: u64, rows| Step {
                name: name.to_string(),
                kind,
                batch: batch as usize,
                rows,
                seconds,
                open_loop: None,
            };
            let open_loop = self.open_loop.map(|percent| percent / 100.0);
            let length = seconds.or(Some(self.seconds as f64));
            let query = |name: String, rate| Step {
                name,
                seconds: length,
                ..plain(StepKind::Query { rate }, batch[1], 0)
            };
            match name {
                "l.i0" => steps.push(plain(StepKind::Load, batch[0], load)),
                "l.x" => steps.push(plain(StepKind::Index, batch[0], 0)),
                "l.i1" => {
                    steps.push(Step { open_loop, ..plain(StepKind::Insert, batch[1], more) });
                }
                "l.i2" => {
                    steps.push(Step { open_loop, ..plain(StepKind::Insert, batch[2], more / 10) });
                }
                "u" => steps.push(plain(StepKind::Update, batch[2], more)),
                "p" => {
                    let kind = plain(StepKind::Read, batch[0], 0);
                    steps.push(Step { seconds: length, ..kind });
                }
                "q" => {
                    for rate in self.rates.split(',') {
                        let rate = count(rate).map_err(|e| usage("rates", &e))?;
                        steps.extend((1..=2).map(|n| query(format!("q{rate}.{n}"), rate)));
                    }
                }
                _ => steps.push(query(name.to_string(), query_rate(name)?)),
            }
        }
        Ok(steps)
    }
}

fn query_rate(name: &str) -> Result<u64, BenchError> {
    let rate = name.strip_prefix('q').and_then(|rest| rest.split_once('.'));
    let rate = rate.filter(|(_, n)| n.parse::<u32>().is_ok()).and_then(|(r, _)| count(r).ok());
    rate.ok_or_else(|| usage("steps", &format!("'{name}': one of l.i0 l.x l.i1 l.i2 u p q qR.N")))
}

fn step_seconds(text: &str) -> Result<f64, BenchError> {
    let seconds = text.strip_suffix('s').and_then(|n| n.parse::<f64>().ok());
    seconds
        .filter(|s| *s > 0.0 && *s <= 1e6)
        .ok_or_else(|| usage("steps", &format!("'{text}': seconds, such as 60s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn options(line: &str) -> Result<Options, BenchError> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Line::try_parse_from(words).expect("flags are known").flags.options()
    }

    #[test]
    fn counts_are_decimal_and_sizes_are_not() {
        assert_eq!(
            (count("2M"), count("500k"), count("1.5k")),
            (Ok(2_000_000), Ok(500_000), Ok(1500))
        );
        assert_eq!((size("4K"), size("256M"), size("17")), (Ok(4096), Ok(256 << 20), Ok(17)));
        for bad in ["", "x", "1q", "-1", "1.5", "1e30"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        let options = options("").expect("valid");
        let names: Vec<&str> = options.steps.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["l.i0", "l.x", "l.i1", "q100.1", "q100.2", "q1000.1", "q1000.2"]);
        assert_eq!((options.steps[0].rows, options.steps[0].batch), (2_000_000, 100));
        assert_eq!((options.steps[2].rows, options.steps[2].batch), (500_000, 50));
        assert_eq!(options.steps[3].seconds, Some(10.0));
        assert_eq!((options.memory, options.page_size, options.durability), (256 << 20, 4096, 1));
        assert!(options.temporary && options.direct_io && !options.deletes);
    }

    #[test]
    fn steps_may_be_timed_or_single() {
        let line = "--steps l.i1:1800s,q300.1,q5.2:3s,l.i2,u,p --open-loop 60 --rows 1M,1k";
        let steps = options(line).expect("valid").steps;
        assert_eq!((steps[0].seconds, steps[0].open_loop), (Some(1800.0), Some(0.6)));
        assert_eq!(steps[1].kind, StepKind::Query { rate: 300 });
        assert_eq!((steps[2].seconds, steps[3].rows, steps[3].batch), (Some(3.0), 100, 5));
        assert_eq!((steps[4].kind, steps[4].rows, steps[4].batch), (StepKind::Update, 1000, 5));
        assert_eq!((steps[5].kind, steps[5].seconds), (StepKind::Read, Some(10.0)));
    }

    #[test]
    fn wrong_values_name_their_flag() {
        let lines = [
            ("--rows 5", "--rows"),
            ("--rows 5,x", "--rows"),
            ("--batch 1,2", "--batch"),
            ("--batch 0,1,1", "--batch"),
            ("--steps l.i9", "--steps"),
            ("--steps l.i1:10", "--steps"),
            ("--steps qx.1", "--steps"),
            ("--rates x", "--rates"),
            ("--durability 3", "--durability"),
            ("--page-size 5K", "--page-size"),
            ("--memory lots", "--memory"),
            ("--queries all", "--queries"),
            ("--pattern pk=up", "--pattern"),
            ("--clients 0", "--clients"),
            ("--open-loop 0", "--open-loop"),
            ("--seconds 0", "--seconds"),
        ];
        for (line, flag) in lines {
            let error = options(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().starts_with(flag), "{line}: {error}");
        }
    }
}
