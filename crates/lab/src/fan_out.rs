//! `lab fan-out` (P7): a table is divided into chunks by time, each with its own indexes, and a
//! query does not name the time. The query must search every chunk, unless a summary of the chunk
//! shows that it has no matching row.

use crate::outcome::{self, Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
use evenkeel_base::Result;
use evenkeel_io::Rng;
use evenkeel_runs::{Asked, Summary, SummaryBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sizes.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Rows of the table.
    pub rows: u64,
    /// Chunks of the largest division.
    pub chunks: u64,
    /// Devices; each sends rows for one part of the time only.
    pub devices: u64,
    /// Each device is active in one part in this many.
    pub device_life: u64,
    /// An order number may be this many rows late.
    pub late_rows: u64,
    /// Queries of each kind.
    pub queries: u64,
    /// Entries in a page of an index.
    pub page_entries: u64,
}

impl Setup {
    /// The reported sizes, divided by `scale`.
    pub fn new(scale: u64, seed: u64) -> Setup {
        let scale = scale.max(1);
        Setup {
            seed,
            rows: (2_000_000 / scale).max(1_000),
            chunks: (10_000 / scale).max(10),
            devices: (100_000 / scale).max(200),
            device_life: 100,
            late_rows: 100,
            queries: 200,
            page_entries: 400,
        }
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        outcome::settings(&json!({
            "rows": self.rows,
            "chunks": self.chunks,
            "devices": self.devices,
            "device_life": self.device_life,
            "late_rows": self.late_rows,
            "queries": self.queries,
            "page_entries": self.page_entries,
        }))
    }

    /// (order number, device) of each row, by time.
    fn table(&self) -> Vec<(u64, u64)> {
        let mut rng = Rng::new(self.seed);
        let alive = (self.devices / self.device_life).max(1);
        let row = |at: u64| {
            let device = (at * self.devices / self.rows + rng.below(alive)) % self.devices;
            // The number of a device does not depend on its time.
            (at + rng.below(self.late_rows), evenkeel_io::rng::mix(device))
        };
        (0..self.rows).map(row).collect()
    }
}

/// The key of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An order number: numbers increase with time, with few exceptions.
    Order,
    /// A device: its rows are close to each other in time, but its number does not depend on the
    /// time.
    Device,
}

/// What a query knows of a chunk before it opens the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Range,
    RangeAndFilter,
}

const POLICIES: [(&str, Known); 3] = [
    ("every chunk", Known::Nothing),
    ("min/max", Known::Range),
    ("min/max and Bloom filter", Known::RangeAndFilter),
];

/// One chunk: its index on one column, in order, and its summary.
struct Part {
    keys: Vec<u64>,
    summary: Option<Summary>,
}

/// The average cost of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    chunks: f64,
    pages: f64,
    rows: f64,
    memory: f64,
}

impl Part {
    fn new(mut keys: Vec<u64>, known: Known) -> Result<Part> {
        keys.sort_unstable();
        let mut builder = SummaryBuilder::default();
        if known != Known::Nothing {
            keys.iter().for_each(|key| builder.push(&key.to_be_bytes()));
        }
        let summary = builder.finish(known == Known::RangeAndFilter)?;
        Ok(Part { keys, summary })
    }

    fn may_hold(&self, asked: &Asked<'_>) -> bool {
        self.summary.as_ref().is_none_or(|summary| summary.may_hold(asked))
    }

    /// The number of rows with this key, and the number of index pages read to find them.
    fn search(&self, key: u64, page_entries: u64) -> (u64, u64) {
        let first = self.keys.partition_point(|k| *k < key);
        let rows = self.keys[first..].iter().take_while(|k| **k == key).count() as u64;
        let (mut pages, mut height) = ((self.keys.len() as u64).div_ceil(page_entries), 1);
        while pages > 1 {
            pages = pages.div_ceil(page_entries);
            height += 1;
        }
        // The further leaves up to that of the last row.
        let (leaf, first) = (|at: u64| at / page_entries, first as u64);
        (rows, height + leaf(first + rows.max(1) - 1) - leaf(first))
    }
}

/// The table in this many chunks, with one index on the column of this kind.
fn divide(table: &[(u64, u64)], kind: Kind, chunks: u64, known: Known) -> Result<Vec<Part>> {
    let rows = (table.len() as u64).div_ceil(chunks).max(1) as usize;
    let key = |row: &(u64, u64)| if kind == Kind::Order { row.0 } else { row.1 };
    table.chunks(rows).map(|part| Part::new(part.iter().map(key).collect(), known)).collect()
}

fn ask(setup: &Setup, table: &[(u64, u64)], kind: Kind, parts: &[Part]) -> Cost {
    let mut rng = Rng::new(setup.seed ^ 0xa5c);
    let mut cost = Cost::default();
    for _ in 0..setup.queries {
        let row = table[rng.below(table.len() as u64) as usize];
        let key = if kind == Kind::Order { row.0 } else { row.1 };
        let bytes = key.to_be_bytes();
        let asked = Asked::key(&bytes);
        for part in parts.iter().filter(|part| part.may_hold(&asked)) {
            let (rows, pages) = part.search(key, setup.page_entries);
            cost.chunks += 1.0;
            cost.pages += pages as f64;
            cost.rows += rows as f64;
        }
    }
    let summaries = parts.iter().filter_map(|p| p.summary.as_ref());
    let memory = summaries.map(Summary::memory).sum::<usize>() as f64;
    let each = setup.queries.max(1) as f64;
    let Cost { chunks, pages, rows, .. } = cost;
    Cost { chunks: chunks / each, pages: pages / each, rows: rows / each, memory }
}

const COLUMNS: [Column; 7] = [
    Column { name: "chunks opened, by device", unit: Unit::Count },
    Column { name: "pages read, by device", unit: Unit::Count },
    Column { name: "rows found, by device", unit: Unit::Count },
    Column { name: "chunks opened, by order number", unit: Unit::Count },
    Column { name: "pages read, by order number", unit: Unit::Count },
    Column { name: "rows found, by order number", unit: Unit::Count },
    Column { name: "memory of the summaries", unit: Unit::Bytes },
];

/// 1, 10, 100, ... up to `most`.
fn divisions(most: u64) -> Vec<u64> {
    let mut all: Vec<u64> =
        std::iter::successors(Some(1), |n| Some(n * 10)).take_while(|n| *n < most).collect();
    all.push(most);
    all
}

/// The experiment.
///
/// # Errors
/// Only `Internal`.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let table = setup.table();
    let (mut policies, mut charts) = (Vec::new(), Vec::new());
    for (name, _) in POLICIES {
        policies.push(Policy { name: name.into(), values: Vec::new() });
    }
    let mut memory = [0.0; POLICIES.len()];
    for (kind, id, title) in [
        (Kind::Device, "device", "Index pages read by a query for one device, by chunks"),
        (Kind::Order, "order", "Index pages read by a query for one order number, by chunks"),
    ] {
        let mut lines = Vec::new();
        for (colour, (name, known)) in POLICIES.into_iter().enumerate() {
            let mut points = Vec::new();
            let mut last = Cost::default();
            for chunks in divisions(setup.chunks) {
                last = ask(setup, &table, kind, &divide(&table, kind, chunks, known)?);
                points.push((chunks as f64, last.pages));
            }
            lines.push(Line { name: name.into(), colour, points });
            let values = &mut policies[colour].values;
            values.extend([last.chunks, last.pages, last.rows].map(Some));
            memory[colour] += last.memory;
        }
        let axis = |name| Axis { name, unit: Unit::Count, log: true };
        let (x, y) = (axis("chunks"), axis("pages read"));
        charts.push(Chart { id, title: title.into(), x, y, lines });
    }
    for (policy, bytes) in policies.iter_mut().zip(memory) {
        policy.values.push(Some(bytes));
    }
    Ok(Outcome {
        format: FORMAT,
        experiment: "fan-out",
        title: "A query that does not say in which chunk to look",
        question: "A table is divided by time into chunks with indexes of their own. What does a \
                   query read that asks for a device, or for an order number, and names no time?",
        seed: setup.seed,
        settings: setup.settings(),
        columns: COLUMNS.to_vec(),
        policies,
        charts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_finds_the_rows_that_a_search_by_hand_finds() {
        for seed in 0..3 {
            let setup = Setup::new(1000, seed);
            let table = setup.table();
            for kind in [Kind::Order, Kind::Device] {
                let mut rng = Rng::new(setup.seed ^ 0xa5c);
                let key = |row: &(u64, u64)| if kind == Kind::Order { row.0 } else { row.1 };
                let by_hand: u64 = (0..setup.queries)
                    .map(|_| key(&table[rng.below(table.len() as u64) as usize]))
                    .map(|asked| table.iter().filter(|row| key(row) == asked).count() as u64)
                    .sum();
                for (name, known) in POLICIES {
                    for chunks in [1, 7, 100] {
                        let parts = divide(&table, kind, chunks, known).expect("built");
                        let rows = ask(&setup, &table, kind, &parts).rows;
                        let wanted = by_hand as f64 / setup.queries as f64;
                        assert_eq!(rows, wanted, "seed {seed} {name} {chunks} {kind:?}");
                    }
                }
            }
        }
    }

    /// An index as pages: the leaves, and above them pages that hold the least and the greatest key
    /// of each page below. Those read by a search, one by one.
    fn pages_by_hand(mut keys: Vec<u64>, key: u64, page_entries: usize) -> u64 {
        keys.sort_unstable();
        let of = |page: &[(u64, u64)]| (page[0].0, page[page.len() - 1].1);
        let mut levels = vec![keys.iter().map(|key| (*key, *key)).collect::<Vec<_>>()];
        while levels.len() < 2 || levels[levels.len() - 1].len() > 1 {
            let below = &levels[levels.len() - 1];
            levels.push(below.chunks(page_entries).map(of).collect());
        }
        let (mut at, mut read) = (0, 0);
        for level in levels[1..].iter().rev().skip(1) {
            read += 1;
            let end = level.len().min((at + 1) * page_entries);
            at = (at * page_entries..end).find(|page| level[*page].1 >= key).unwrap_or(end - 1);
        }
        read += 1;
        let next = levels[1][at + 1..].iter();
        read + next.take_while(|page| page.0 == key).count() as u64
    }

    #[test]
    fn chunks_and_pages_equal_a_search_by_hand() {
        for seed in 0..3 {
            let setup = Setup { page_entries: 10, ..Setup::new(1000, seed) };
            let table = setup.table();
            for (kind, chunks) in [(Kind::Order, 7), (Kind::Device, 7), (Kind::Device, 1)] {
                let key = |row: &(u64, u64)| if kind == Kind::Order { row.0 } else { row.1 };
                let keys: Vec<u64> = table.iter().map(key).collect();
                let all: Vec<&[u64]> = keys.chunks(keys.len().div_ceil(chunks)).collect();
                for (name, known) in POLICIES {
                    let parts = divide(&table, kind, chunks as u64, known).expect("built");
                    let (mut rng, mut opened, mut pages) = (Rng::new(seed ^ 0xa5c), 0, 0);
                    let (mut passed, mut in_vain) = (0, 0);
                    for _ in 0..setup.queries {
                        let asked = keys[rng.below(keys.len() as u64) as usize];
                        for (chunk, part) in all.iter().zip(&parts) {
                            let within = chunk.iter().any(|k| *k <= asked)
                                && chunk.iter().any(|k| *k >= asked);
                            let holds = chunk.contains(&asked);
                            let opens = match known {
                                Known::Nothing => true,
                                Known::Range => within,
                                // False positives of the filter are counted, and limited below.
                                Known::RangeAndFilter => {
                                    let may = part.may_hold(&Asked::key(&asked.to_be_bytes()));
                                    assert!(within || !may, "seed {seed} {name} {asked}");
                                    assert!(may || !holds, "seed {seed} {name} {asked}");
                                    passed += u64::from(within && !holds);
                                    in_vain += u64::from(may && !holds);
                                    may
                                }
                            };
                            if opens {
                                opened += 1;
                                pages += pages_by_hand(chunk.to_vec(), asked, 10);
                            }
                        }
                    }
                    let cost = ask(&setup, &table, kind, &parts);
                    let each = |sum: u64| sum as f64 / setup.queries as f64;
                    let wanted = (each(opened), each(pages));
                    assert_eq!((cost.chunks, cost.pages), wanted, "seed {seed} {name} {kind:?}");
                    assert!(in_vain * 40 <= passed + 40, "{in_vain} of {passed}");
                }
            }
        }
    }

    #[test]
    fn twice_the_chunks_are_twice_the_work_unless_they_are_pruned() {
        let setup = Setup::new(20, 6);
        let table = setup.table();
        let opened = |kind, known, chunks| {
            let parts = divide(&table, kind, chunks, known).expect("built");
            ask(&setup, &table, kind, &parts).chunks
        };
        let (one, two) = (100, 200);
        for kind in [Kind::Order, Kind::Device] {
            assert_eq!(opened(kind, Known::Nothing, one), one as f64);
            assert_eq!(opened(kind, Known::Nothing, two), two as f64);
        }
        // An order number is in one chunk, or in its neighbour if it was late.
        assert!(opened(Kind::Order, Known::Range, two) < 2.5);
        // The numbers of devices are spread over each chunk, so only a filter helps.
        assert!(opened(Kind::Device, Known::Range, two) > 0.9 * two as f64);
        assert!(opened(Kind::Device, Known::RangeAndFilter, two) < 0.1 * two as f64);
    }

    #[test]
    fn equal_setups_give_equal_outcomes() {
        let setup = Setup::new(500, 2);
        let outcome = run(&setup).expect("it runs");
        assert_eq!(run(&setup).expect("again").text(), outcome.text());
    }
}
