//! The flags of `evenkeel bench`, which the comparison shares: only their texts and defaults.
//! `Options` holds the checked values.

use clap::Args;
use std::path::PathBuf;

/// Flags of the insert benchmark.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Directory of the store [default: ./evenkeel-bench, removed at the end]. A directory given
    /// here is kept, and a run whose steps lack l.i0 continues from it
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Rows per client loaded in l.i0, and inserted in l.i1; l.i2 inserts a tenth of that.
    /// Suffixes k, M, G are decimal
    #[arg(long, value_name = "X,Y", default_value = "2M,500k")]
    pub rows: String,
    /// Clients, each with a table and threads of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub clients: usize,
    /// Memory budget of the engine (memory_size), bytes; 0: automatic. Suffixes K, M, G are
    /// 1024-based
    #[arg(long, value_name = "BYTES", default_value = "256M")]
    pub memory: String,
    /// 1: synced at commit; 2: written at commit, synced each second; 0: written and synced each
    /// second
    #[arg(long, value_name = "0|1|2", default_value_t = 1)]
    pub durability: u8,
    /// Steps in order: l.i0 l.x l.i1 l.i2 u p q qR.N. q means two query steps for each rate; q300.1
    /// is one at 300 rows per second; l.i1:1800s ends after 1800 seconds
    #[arg(long, value_name = "LIST", default_value = "l.i0,l.x,l.i1,q")]
    pub steps: String,
    /// Rates of the q steps: rows inserted per second and client while queries run
    #[arg(long, value_name = "LIST", default_value = "100,1000")]
    pub rates: String,
    /// Length of each q and p step, seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub seconds: u64,
    /// Rows per transaction in l.i0 (and p), l.i1 (and q) and l.i2 (and u)
    #[arg(long, value_name = "A,B,C", default_value = "100,50,5")]
    pub batch: String,
    /// From l.i1 on, delete as many rows from the low end of the primary key as are inserted
    #[arg(long)]
    pub deletes: bool,
    /// Queries of the q steps: range on a secondary index, or primary-key lookups of 10 rows
    #[arg(long, value_name = "range|pk", default_value = "range")]
    pub queries: String,
    /// Insert pattern of an index: NAME=inf or NAME=nAsc:1,nDesc:0,nLHS:0,nRHS:1; NAME is pk,
    /// marketsegment, registersegment or pdc. May be repeated [default: the benchmark's own]
    #[arg(long, value_name = "NAME=P")]
    pub pattern: Vec<String>,
    /// After each of l.i1 and l.i2, insert the same again at PCT percent of the rate just reached,
    /// at random times (Poisson) that do not wait for the engine; response times are counted from
    /// the intended start
    #[arg(long, value_name = "PCT")]
    pub open_loop: Option<f64>,
    /// From l.i1 on, hold a transaction with a snapshot open for the first S seconds of each step
    #[arg(long, value_name = "S")]
    pub snapshot_seconds: Option<u64>,
    /// Seed of the rows and queries
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Page size of a new store, bytes
    #[arg(long, value_name = "4K|8K|16K", default_value = "4K")]
    pub page_size: String,
    /// Bypass the page cache of the operating system
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub direct_io: bool,
    /// Engine: evenkeel; null (the control: same client and bytes per commit, nothing else); or the
    /// URL of a server, mariadb://... or postgres://...
    #[arg(long, value_name = "NAME", default_value = "evenkeel")]
    pub engine: String,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report: one HTML page that works offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
