//! The report's description of each policy, row and setting, by name. A test checks that none is
//! missing.

use crate::outcome::{Outcome, Unit};

type Texts = [(&'static str, &'static str)];

fn of(texts: &Texts, name: &str) -> Option<&'static str> {
    texts.iter().find(|text| text.0 == name).map(|text| text.1)
}

/// A policy of an experiment.
pub fn policy(experiment: &str, name: &str) -> Option<&'static str> {
    match experiment {
        "flush-scan" => of(&FLUSH_SCAN, name),
        "restart-flush" => of(&RESTART_FLUSH, name),
        "free-pages" => of(&FREE_PAGES, name),
        "dirty-count" => of(&DIRTY_COUNT, name),
        "fan-out" => of(&FAN_OUT, name),
        _ => of(&SCALE, name),
    }
}

/// A row of the table.
pub fn column(name: &str) -> Option<&'static str> {
    of(&COLUMNS, name)
}

/// A setting.
pub fn setting(name: &str) -> Option<&'static str> {
    of(&SETTINGS, name)
}

/// The unit of a setting, derived from its name.
pub fn unit(name: &str) -> &'static str {
    let ends = |end: &str| name.ends_with(end);
    match name {
        _ if ends("bytes_per_sec") || name == "compacted_bytes_per_core" => "bytes per second",
        _ if ends("_per_sec") => "per second",
        _ if ends("_ns") => "ns",
        _ if ends("bytes") => "bytes",
        _ if ends("_pct") => "%",
        _ if ends("_s") || ends("seconds") => "s",
        _ => "",
    }
}

/// The conclusion from the figures, in a sentence or two.
pub fn conclusion(outcome: &Outcome) -> String {
    let said = |policy: &str, column: &str| {
        let unit =
            outcome.columns.iter().find(|c| c.name == column).map_or(Unit::Count, |c| c.unit);
        outcome.value(policy, column).map_or("\u{2013}".into(), |value| unit.show(value))
    };
    match outcome.experiment {
        "flush-scan" => {
            let worst = |policy| said(policy, "worst second meanwhile");
            format!(
                "Of {} the worst second leaves {} beside the scan that restarts, {} beside a \
                 hazard pointer, and {} where no page of an index is in the pool.",
                said("restart", "transactions per second before"),
                worst("restart"),
                worst("hazard pointer"),
                worst("evenkeel")
            )
        }
        "restart-flush" => format!(
            "The published law flushes {} pages for each page that its statistics request, and its \
             worst second has {} of the usual rate; with evenkeel these are {} and {}.",
            said("published", "flushed / requested, first 30 s"),
            said("published", "worst / last 10 s"),
            said("evenkeel", "flushed / requested, first 30 s"),
            said("evenkeel", "worst / last 10 s")
        ),
        "free-pages" => format!(
            "With timers, threads waited {} for free frames, one of them {}; with events {}.",
            said("timers", "time threads waited for one"),
            said("timers", "longest wait"),
            said("evenkeel", "time threads waited for one")
        ),
        "dirty-count" => format!(
            "A statement looks at {} entries to find one number; with a counter it looks at {}.",
            said("scan", "entries looked at per statement"),
            said("evenkeel", "entries looked at per statement")
        ),
        "fan-out" => format!(
            "A query for one device opens {} chunks without summaries, {} if each chunk has a \
             least and a greatest key, and {} with a filter.",
            said("every chunk", "chunks opened, by device"),
            said("min/max", "chunks opened, by device"),
            said("min/max and Bloom filter", "chunks opened, by device")
        ),
        _ => {
            let least = |policy: &&str| outcome.value(policy, "worst interval / offered");
            let names: Vec<&str> = outcome.policies.iter().map(|p| p.name.as_str()).collect();
            let even = names.iter().filter(|n| least(n).is_some_and(|share| share > 0.9)).count();
            format!(
                "In {even} of {} cases each interval has at least nine tenths of the rows \
                 offered; in the others the disk or the processors cannot follow.",
                names.len()
            )
        }
    }
}

const FLUSH_SCAN: [(&str, &str); 5] = [
    ("restart", "the scan begins at the oldest page again after each page that it writes"),
    (
        "hazard pointer",
        "one pass; a thread that removes the page where the pass will continue moves the pointer",
    ),
    (
        "optimistic, first version",
        "one pass that pins the page where it will continue, but reads the state of that page \
         without its lock; when it loses its place, the restarting scan does the rest of the list",
    ),
    (
        "optimistic",
        "the same with the lock; pages that may not be pinned are left to the second pass",
    ),
    ("evenkeel", "a build writes runs straight to files: no page of an index is in the pool"),
];

const RESTART_FLUSH: [(&str, &str); 3] = [
    ("published", "computes each cleaner's share from an average that does not exist yet"),
    ("repaired", "without an average the budget is divided evenly"),
    ("evenkeel", "the law needs no history, and all cleaners draw from one quota"),
];

const FREE_PAGES: [(&str, &str); 2] = [
    (
        "timers",
        "threads that sleep between their runs free frames; their last run sets the next sleep",
    ),
    ("evenkeel", "a thread that takes a frame and finds few left wakes the thread that frees more"),
];

const DIRTY_COUNT: [(&str, &str); 2] = [
    ("scan", "every page of every flush list is visited"),
    ("evenkeel", "a counter of each table changes when a page becomes dirty or clean"),
];

const FAN_OUT: [(&str, &str); 3] = [
    ("every chunk", "every chunk is opened, because nothing else shows which keys it holds"),
    ("min/max", "the least and the greatest key of each chunk are known"),
    (
        "min/max and Bloom filter",
        "a filter also shows for most absent keys that the chunk does not hold them",
    ),
];

const SCALE: [(&str, &str); 8] = [
    ("150 GB, slow disk", "clients insert 30,000 rows per second; the disk moves 100 MB/s"),
    ("1 TB, slow disk", "the same into a larger database"),
    ("1 TB, slow disk, more than it can", "clients insert ten times as many rows"),
    ("1 TB, slow disk, an index is built", "an index on all rows is built meanwhile"),
    ("10 TB, slow disk", "clients insert 10,000 rows per second"),
    ("10 TB, fast disk", "clients insert 200,000 rows per second; the disk moves 2 GB/s"),
    ("10 TB, fast disk, 2 cores", "the same with two cores, whose time compactions need"),
    ("10 TB, fast disk, 64 cores", "the same with 64 cores"),
];

const COLUMNS: [(&str, &str); 65] = [
    // flush-scan
    ("entries looked at", "pages of a list that were visited; with evenkeel, counters"),
    ("pages of the build flushed", "pages of the new index, or of the catalog, that were written"),
    ("scans from the tail", "how often a scan began at the oldest page"),
    ("left to the second pass", "pages that the pinning pass could not pin"),
    ("place lost", "how often the page where the pass would continue had left the list"),
    ("page locks taken", "by the pass, to read the state of a page and to change it"),
    ("longest hold of the mutex", "by a scan, or by one query of the buckets"),
    (
        "longest hold, the log at its trigger",
        "the same when the oldest page is as old as it may be before writers wait",
    ),
    (
        "times a writer found no free frame",
        "in the instance that is scanned; the writer then sleeps",
    ),
    ("time for the DDL to flush", "from the first look to the last page on the disk"),
    ("the same, no writers", "with as many dirty pages and no other threads"),
    ("the same, idle for long", "no thread wrote, and the cleaner has written all other pages"),
    ("bytes written for it", "pages of the index, or its runs"),
    ("transactions per second before", "the median of the seconds before the scan"),
    ("worst second meanwhile", "transactions in the worst whole second of the scan"),
    ("worst / before", "the part of the usual rate that is left"),
    // restart-flush
    ("pages requested per second, first 30 s", "the request that the statistics of the law show"),
    ("pages flushed per second, first 30 s", "pages that the cleaners gave to the disk"),
    ("flushed / requested, first 30 s", "1 if the statistics are right"),
    ("longest wait for the disk", "of a transaction in the queue of the disk"),
    ("transactions per second, first 30 s", "the mean"),
    ("worst second of the first 30", "transactions in that second"),
    ("transactions per second, last 10 s", "the usual rate"),
    ("worst / last 10 s", "the part of the usual rate that is left"),
    // free-pages
    ("pages read per second", "the mean"),
    ("best second", "pages read in that second"),
    ("least free frames", "of all instances, at any time"),
    ("times a thread found none", "and had to sleep or search for one itself"),
    ("time threads waited for one", "of all threads together"),
    ("longest wait", "of one thread for one frame"),
    ("time of sleeps begun on timers", "by threads that need a frame"),
    ("time the background slept on timers", "of all its threads together"),
    ("runs of the background", "runs of the threads that free frames"),
    ("runs that found nothing to do", "of these runs"),
    ("frames the background looked at", "in search of frames to write or to free"),
    ("frames threads looked at", "in search of a frame, when none was free"),
    ("processor time of the background", "for waking up and for visiting frames"),
    ("processor time spent in vain", "by runs with nothing to do and threads that found nothing"),
    // dirty-count
    ("entries looked at per statement", "pages of lists, or counters"),
    ("time to count per statement", "the entries times the time of one look"),
    ("longest hold of a mutex", "a mutex that queries need too"),
    ("queries that waited per statement", "the queries that arrive while the mutex is held"),
    ("time to count, all tables rebuilt", "one statement for each table"),
    // fan-out
    ("chunks opened, by device", "by a query for one device, on average"),
    ("pages read, by device", "of the indexes of those chunks"),
    ("rows found, by device", "the same for all policies"),
    ("chunks opened, by order number", "by a query for one order number, on average"),
    ("pages read, by order number", "of the indexes of those chunks"),
    ("rows found, by order number", "the same for all policies"),
    ("memory of the summaries", "of all chunks"),
    // scale
    ("rows per second offered", "rows that the clients want to insert"),
    ("rows per second inserted", "the mean while clients insert"),
    (
        "the disk could take, by the formula",
        "rows per second that the disk sustains, if compactions take no time",
    ),
    ("worst interval / offered", "of the intervals that the charts show"),
    ("bytes written per row", "log, pages and runs"),
    ("bytes written per row, by the formula", "if compactions take no time"),
    ("most runs of an index", "a query reads each of them"),
    ("compactions into a bottom run", "the long ones, of nearly a whole index"),
    ("largest compaction debt", "bytes that the compactions begun have left to read and write"),
    ("largest debt, by the formula", "twice the bytes of all indexes"),
    ("rows held back by memtable space", "a share of the rows offered"),
    ("rows held back by compaction debt", "a share of the rows offered"),
    ("rows held back by the queue of the disk", "a share of the rows offered"),
    ("longest queue of the disk", "the longest wait of a commit in it"),
    ("the index is built after", "from the first inserted row on"),
];

const SETTINGS: [(&str, &str); 70] = [
    // flush-scan
    ("pages", "dirty pages in the pool"),
    ("own", "pages of the new index among them"),
    ("instances", "parts of the pool, each with its own lists and mutex"),
    ("writers", "threads that write"),
    ("tx_ns", "the time of a transaction that waits for nothing"),
    ("pages_per_tx", "pages that a transaction reads into free frames and makes dirty"),
    ("step_ns", "the time to look at one page of a list, or at one counter"),
    ("section_steps", "steps after which a scan releases the mutex"),
    ("gap_ns", "the time for which it is released"),
    ("hold_ns", "the time for which any other thread holds the mutex for a page"),
    ("poll_ns", "the time between two polls of a taken mutex"),
    ("polls", "polls after which a thread sleeps"),
    ("wake_ns", "the time after which a woken thread runs, about"),
    ("io_ns", "the time in which the disk reads or writes one page"),
    ("issue_ns", "the time in which a cleaner hands one page to the disk"),
    ("io_threads", "threads per instance that handle finished writes"),
    ("free_frames", "free frames that a cleaner keeps in each instance"),
    ("page_bytes", "bytes of a page"),
    ("disk_bytes_per_sec", "bytes that the disk moves"),
    ("tx_log_bytes", "log that a transaction writes"),
    ("age_eighths", "age of the oldest page at first, in eighths of the log that users may fill"),
    ("mixed", "pages of other tables that became dirty during the build, per page of the index"),
    ("recent", "the newest pages, among which pages in use and neighbours of written pages lie"),
    (
        "neighbours_pct",
        "share of the cleaner's pages that are neighbours on disk of the oldest pages",
    ),
    ("limit_s", "the longest time of an experiment"),
    ("rows_indexed_by_evenkeel", "rows of a table whose index has the same size"),
    // restart-flush
    ("cleaners", "threads that write pages"),
    ("log_bytes", "size of the log"),
    ("first_age_pct", "age of the log when recovery ends"),
    ("first_dirty_pages", "dirty pages when recovery ends"),
    ("hot_pages", "pages that transactions change"),
    ("connections", "threads of users"),
    ("disk_visits", "times that a transaction waits for the disk: for a read, for the log"),
    ("reads", "pages that a transaction reads from the disk"),
    ("io_capacity", "pages per second of the disk, as configured"),
    ("io_capacity_max", "the greatest number of pages per second, as configured"),
    ("async_pages", "the most page writes under way in the reported engine"),
    ("batch_pages", "pages that one of our cleaners writes at once"),
    ("seconds", "seconds shown"),
    // free-pages
    ("frames", "frames of the pool"),
    ("threads", "threads that read pages"),
    ("busy_ns", "the time between two pages of a thread in a burst"),
    ("quiet_ns", "the same between bursts"),
    ("burst_ns", "the length of a burst"),
    ("pause_ns", "the time between two bursts"),
    ("dirty_one_in", "one page in this many is changed"),
    ("disk_pages_per_sec", "reads and writes together"),
    ("scan_depth", "frames that a manager looks at in a run"),
    ("sleep_ns", "the first and the longest sleep of a manager"),
    ("adjust_ns", "the change of that sleep after a run"),
    (
        "retry_ns",
        "the first sleep of a thread that finds no frame; each further one is twice as long",
    ),
    ("retry_most_ns", "the longest of these sleeps"),
    ("run_ns", "processor time of going to sleep and waking up"),
    // dirty-count
    ("tables", "tables of the server"),
    ("statements", "statements that rebuild an index"),
    ("queries_per_sec", "queries that need the mutex of one instance each"),
    // fan-out
    ("rows", "rows of the table"),
    ("chunks", "chunks of the largest division"),
    ("devices", "devices that send rows"),
    ("device_life", "a device is in service for one in this many parts of the time"),
    ("late_rows", "rows by which an order number may be late"),
    ("queries", "queries of each kind"),
    ("page_entries", "entries in a page of an index"),
    // scale
    ("scale", "the divisor of sizes and times"),
    ("generation_bytes", "size of a memtable generation"),
    ("compacted_bytes_per_core", "runs that a thread compacts, by its processor time alone"),
    ("slow_disk_bytes_per_sec", "bytes that the slow disk moves"),
    ("slow_disk_ios_per_sec", "I/Os of the slow disk"),
    ("fast_disk_bytes_per_sec", "bytes that the fast disk moves"),
    ("fast_disk_ios_per_sec", "I/Os of the fast disk"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dirty_count, fan_out, flush_scan, free_pages, report, restart_flush, scale};

    #[test]
    fn a_report_explains_every_policy_row_and_setting_and_concludes() {
        let outcomes = [
            flush_scan::run(&flush_scan::Setup::new(5_000, 1)).expect("it runs"),
            restart_flush::run(&restart_flush::Setup::new(500, 1)),
            free_pages::run(&free_pages::Setup::new(100, 1)),
            dirty_count::run(&dirty_count::Setup::new(1_000, 1)),
            fan_out::run(&fan_out::Setup::new(1_000, 1)).expect("it runs"),
            scale::experiment::run(2_000, 1),
        ];
        for outcome in &outcomes {
            let experiment = outcome.experiment;
            for one in &outcome.policies {
                assert!(policy(experiment, &one.name).is_some(), "{experiment}: {}", one.name);
            }
            for one in &outcome.columns {
                assert!(column(one.name).is_some(), "{experiment}: {}", one.name);
            }
            for name in outcome.settings.keys() {
                assert!(setting(name).is_some(), "{experiment}: {name}");
            }
            let page = report::page(outcome);
            let said = conclusion(outcome);
            assert!(page.contains(&report::escape(&said)), "{experiment}");
            assert!(!said.contains('\u{2013}'), "{experiment}: a figure is missing: {said}");
        }
    }
}
