//! `lab dirty-count` (P5): before an index of a table is rebuilt, the dirty pages of the table are
//! counted for a progress estimate. They are counted by visiting every dirty page, or a counter is
//! maintained.

use crate::outcome::{self, Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
use evenkeel_base::{Lsn, TreeId};
use evenkeel_io::Rng;
use evenkeel_pages::dirty::Dirty;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SECOND: f64 = 1e9;
/// Bytes of log between two pages that become dirty.
const LOG_BYTES: u64 = 2_000;

/// Sizes, times and rates.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Tables.
    pub tables: u64,
    /// Dirty pages, of all tables.
    pub pages: u64,
    /// Instances of the pool, each with a flush list and a mutex.
    pub instances: u64,
    /// Statements that rebuild an index of a table.
    pub statements: u64,
    /// Queries per second; each needs the mutex of one instance.
    pub queries_per_sec: u64,
    /// Nanoseconds to visit one page or counter.
    pub step_ns: u64,
}

impl Setup {
    /// The reported sizes, divided by `scale`.
    pub fn new(scale: u64, seed: u64) -> Setup {
        let scale = scale.max(1);
        Setup {
            seed,
            tables: (600_000 / scale).max(1),
            pages: (4_200_000 / scale).max(64),
            instances: 8,
            statements: 200,
            queries_per_sec: 10_000,
            step_ns: 40,
        }
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        outcome::settings(&json!({
            "tables": self.tables,
            "pages": self.pages,
            "instances": self.instances,
            "statements": self.statements,
            "queries_per_sec": self.queries_per_sec,
            "step_ns": self.step_ns,
        }))
    }

    /// The table of each dirty page, in the order in which they became dirty.
    fn owners(&self) -> impl Iterator<Item = TreeId> {
        let (mut rng, tables) = (Rng::new(self.seed), self.tables);
        (0..self.pages).map(move |_| TreeId(rng.below(tables) as u32 + 1))
    }

    /// The tables that are rebuilt.
    fn rebuilt(&self) -> Vec<TreeId> {
        let mut rng = Rng::new(self.seed ^ 0xa17e);
        (0..self.statements).map(|_| TreeId(rng.below(self.tables) as u32 + 1)).collect()
    }
}

/// A flush list per instance: a page is (its table, the next one towards the head).
struct Lists {
    pages: Vec<(TreeId, u32)>,
    tails: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Lists {
    fn new(setup: &Setup) -> Lists {
        let instances = setup.instances as usize;
        let mut lists = Lists { pages: Vec::new(), tails: vec![NONE; instances] };
        let mut heads = vec![NONE; instances];
        for (number, table) in (0u32..).zip(setup.owners()) {
            let instance = number as usize % instances;
            lists.pages.push((table, NONE));
            match std::mem::replace(&mut heads[instance], number) {
                NONE => lists.tails[instance] = number,
                older => lists.pages[older as usize].1 = number,
            }
        }
        lists
    }

    /// Visits every page; returns the pages of this table, and the number visited in each list.
    fn count(&self, table: TreeId) -> (u64, Vec<u64>) {
        let (mut found, mut steps) = (0, Vec::new());
        for tail in &self.tails {
            let (mut at, mut looked) = (*tail, 0);
            while at != NONE {
                let (owner, newer) = self.pages[at as usize];
                looked += 1;
                found += u64::from(owner == table);
                at = newer;
            }
            steps.push(looked);
        }
        (found, steps)
    }
}

/// The cost of the counts for all statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Entries visited.
    steps: u64,
    /// Pages found, by statement.
    found: Vec<u64>,
    /// The most entries visited while a mutex was held.
    most: u64,
    /// Queries that had to wait.
    waited: u64,
}

/// Counts the pages for each statement. Every statement costs the same, so only `walks` statements
/// visit the pages.
fn by_scan(setup: &Setup, walks: usize) -> Cost {
    let lists = Lists::new(setup);
    let mut cost = Cost::default();
    let mut rng = Rng::new(setup.seed ^ 0x9e7);
    for (number, table) in setup.rebuilt().into_iter().enumerate() {
        let steps = if number < walks {
            let (found, steps) = lists.count(table);
            cost.found.push(found);
            steps
        } else {
            lists.count_of_lists(setup)
        };
        for looked in steps {
            cost.steps += looked;
            cost.most = cost.most.max(looked);
            cost.waited += waiting(setup, looked, &mut rng);
        }
    }
    cost
}

impl Lists {
    /// Pages of each list, all of which a scan visits.
    fn count_of_lists(&self, setup: &Setup) -> Vec<u64> {
        let part = |i: u64| (self.pages.len() as u64 + setup.instances - 1 - i) / setup.instances;
        (0..setup.instances).map(part).collect()
    }
}

/// Number of queries that arrive at this instance while its mutex is held for this many steps.
fn waiting(setup: &Setup, looked: u64, rng: &mut Rng) -> u64 {
    let expected = (looked * setup.step_ns) as f64 / SECOND * setup.queries_per_sec as f64
        / setup.instances as f64;
    let whole = expected.floor();
    let more = rng.below(1 << 32) < ((expected - whole) * 4_294_967_296.0) as u64;
    whole as u64 + u64::from(more)
}

/// The engine's counters.
fn by_counter(setup: &Setup) -> Cost {
    let dirty = Dirty::new(setup.pages * LOG_BYTES);
    for (number, table) in (0u32..).zip(setup.owners()) {
        dirty.join(Lsn(u64::from(number) * LOG_BYTES), number, table);
    }
    let mut cost = Cost::default();
    let mut rng = Rng::new(setup.seed ^ 0x9e7);
    for table in setup.rebuilt() {
        let before = dirty.looks().all;
        cost.found.push(dirty.of_tree(table));
        let looked = dirty.looks().all - before;
        cost.steps += looked;
        cost.most = cost.most.max(looked);
        // One mutex for the whole pool.
        let all = Setup { instances: 1, ..setup.clone() };
        cost.waited += waiting(&all, looked, &mut rng);
    }
    cost
}

const COLUMNS: [Column; 5] = [
    Column { name: "entries looked at per statement", unit: Unit::Count },
    Column { name: "time to count per statement", unit: Unit::Seconds },
    Column { name: "longest hold of a mutex", unit: Unit::Seconds },
    Column { name: "queries that waited per statement", unit: Unit::Count },
    Column { name: "time to count, all tables rebuilt", unit: Unit::Seconds },
];

/// Number of statements whose walk over millions of pages is carried out; the others cost the same.
const WALKS: usize = 3;

fn row(setup: &Setup, cost: &Cost) -> Vec<Option<f64>> {
    let statements = setup.statements as f64;
    let seconds = |steps: f64| steps * setup.step_ns as f64 / SECOND;
    let each = cost.steps as f64 / statements;
    let values = [
        each,
        seconds(each),
        seconds(cost.most as f64),
        cost.waited as f64 / statements,
        seconds(each) * setup.tables as f64,
    ];
    values.map(Some).to_vec()
}

fn growth(setup: &Setup) -> Vec<Line> {
    let line = |colour, name: &str, cost: fn(&Setup) -> Cost| {
        let points = (0..5).rev().map(|halvings| {
            let smaller = Setup { pages: setup.pages >> halvings, statements: 1, ..setup.clone() };
            (smaller.pages as f64, cost(&smaller).steps as f64)
        });
        Line { name: name.into(), colour, points: points.collect() }
    };
    vec![line(0, "scan", |s| by_scan(s, 1)), line(3, "evenkeel", by_counter)]
}

/// The experiment.
pub fn run(setup: &Setup) -> Outcome {
    let policies = vec![
        Policy { name: "scan".into(), values: row(setup, &by_scan(setup, WALKS)) },
        Policy { name: "evenkeel".into(), values: row(setup, &by_counter(setup)) },
    ];
    let axis = |name| Axis { name, unit: Unit::Count, log: true };
    Outcome {
        format: FORMAT,
        experiment: "dirty-count",
        title: "How many dirty pages does this table have?",
        question: "A statement that rebuilds an index asks how many pages of its table are dirty. \
                   What does the answer cost when there are many tables and many dirty pages?",
        seed: setup.seed,
        settings: setup.settings(),
        columns: COLUMNS.to_vec(),
        policies,
        charts: vec![Chart {
            id: "growth",
            title: "Entries looked at by one statement, by dirty pages in the pool".into(),
            x: axis("dirty pages"),
            y: axis("entries looked at"),
            lines: growth(setup),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_equal_a_count_by_hand() {
        for seed in 0..3 {
            let setup = Setup::new(1000, seed);
            let mut by_hand: BTreeMap<TreeId, u64> = BTreeMap::new();
            for table in setup.owners() {
                *by_hand.entry(table).or_default() += 1;
            }
            let tables = setup.rebuilt();
            let wanted: Vec<u64> =
                tables.iter().map(|t| by_hand.get(t).copied().unwrap_or(0)).collect();
            let (scan, counter) = (by_scan(&setup, usize::MAX), by_counter(&setup));
            assert_eq!(scan.found, wanted, "seed {seed}");
            assert_eq!(counter.found, wanted, "seed {seed}");
            assert_eq!(scan.steps, setup.pages * setup.statements);
            assert_eq!(counter.steps, setup.statements);
        }
    }

    #[test]
    fn counted_statements_cost_the_same_as_walked_ones() {
        let setup = Setup { pages: 4_203, ..Setup::new(1000, 1) };
        let (all, few) = (by_scan(&setup, usize::MAX), by_scan(&setup, 2));
        assert_eq!((all.steps, all.most, all.waited), (few.steps, few.most, few.waited));
    }

    #[test]
    fn doubling_the_pages_doubles_a_scan_and_leaves_a_counter() {
        let one = Setup::new(200, 4);
        let two = Setup { pages: 2 * one.pages, ..one.clone() };
        assert_eq!(by_scan(&two, 1).steps, 2 * by_scan(&one, 1).steps);
        assert_eq!(by_counter(&two).steps, by_counter(&one).steps);
        let outcome = run(&one);
        assert_eq!(run(&one).text(), outcome.text());
        assert_eq!(outcome.value("evenkeel", "entries looked at per statement"), Some(1.0));
    }
}
