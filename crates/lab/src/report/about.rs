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
        _ if ends("bytes_per_sec") || name == "merged_bytes_per_core" => "bytes per second",
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
            "The published law flushes {} pages for each that it says it requests, and its worst \
             second has {} of the usual rate; with evenkeel they are {} and {}.",
            said("published", "flushed / requested, first 30 s"),
            said("published", "worst / last 10 s"),
            said("evenkeel", "flushed / requested, first 30 s"),
            said("evenkeel", "worst / last 10 s")
        ),
        "free-pages" => format!(
            "With timers threads waited {} for free frames, the longest time {}; with events {}.",
            said("timers", "time threads waited for one"),
            said("timers", "longest wait"),
            said("evenkeel", "time threads waited for one")
        ),
        "dirty-count" => format!(
            "A statement looks at {} entries to learn one number; with a counter at {}.",
            said("scan", "entries looked at per statement"),
            said("evenkeel", "entries looked at per statement")
        ),
        "fan-out" => format!(
            "A query for one device opens {} chunks where nothing is known of them, {} where each \
             has a least and a greatest key, and {} with a filter.",
            said("every chunk", "chunks opened, by device"),
            said("min/max", "chunks opened, by device"),
            said("min/max and Bloom filter", "chunks opened, by device")
        ),
        _ => {
            let least = |policy: &&str| outcome.value(policy, "worst interval / asked for");
            let names: Vec<&str> = outcome.policies.iter().map(|p| p.name.as_str()).collect();
            let even = names.iter().filter(|n| least(n).is_some_and(|share| share > 0.9)).count();
            format!(
                "In {even} of {} cases no interval has less than nine tenths of the rows that \
                 come; in the others the disk or the processors cannot follow.",
                names.len()
            )
        }
    }
}

const FLUSH_SCAN: [(&str, &str); 5] = [
    ("restart", "the scan begins at the oldest page again after each page that it writes"),
    ("hazard pointer", "one pass; whoever removes the page where it goes on moves the pointer"),
    (
        "optimistic, first version",
        "one pass that pins the page where it goes on, but reads the state of that page without \
         its lock; when the place is lost, the rest of the list is left to the scan that restarts",
    ),
    (
        "optimistic",
        "the same with the lock: a page that may not be pinned is left to the second pass",
    ),
    ("evenkeel", "a build writes runs straight to files: no page of an index is in the pool"),
];

const RESTART_FLUSH: [(&str, &str); 3] = [
    ("published", "each cleaner's share is computed from an average that is not there yet"),
    ("repaired", "without an average the budget is divided evenly"),
    ("evenkeel", "the law needs no history, and all cleaners draw from one quota"),
];

const FREE_PAGES: [(&str, &str); 2] = [
    ("timers", "frames are made free by threads that sleep for a time, tuned by what they found"),
    ("evenkeel", "who takes a frame and finds few left wakes the thread that makes more free"),
];

const DIRTY_COUNT: [(&str, &str); 2] = [
    ("scan", "every page of every flush list is visited"),
    ("evenkeel", "a counter of each table is kept as pages become dirty and clean"),
];

const FAN_OUT: [(&str, &str); 3] = [
    ("every chunk", "nothing is known of a chunk before it is opened"),
    ("min/max", "the least and the greatest key of each chunk are known"),
    ("min/max and Bloom filter", "and a filter says of most keys that they are not there"),
];

const SCALE: [(&str, &str); 8] = [
    ("150 GB, slow disk", "30,000 rows per second come; 100 MB/s"),
    ("1 TB, slow disk", "the same into a larger database"),
    ("1 TB, slow disk, more than it can", "ten times as many rows come"),
    ("1 TB, slow disk, an index is built", "an index on all rows is built meanwhile"),
    ("10 TB, slow disk", "10,000 rows per second come"),
    ("10 TB, fast disk", "200,000 rows per second come; 2 GB/s"),
    ("10 TB, fast disk, 2 cores", "merges need processor time, and there are two cores"),
    ("10 TB, fast disk, 64 cores", "the same with 64 cores"),
];

const COLUMNS: [(&str, &str); 65] = [
    // flush-scan
    ("entries looked at", "pages of a list that were visited; with evenkeel, counters"),
    ("pages of the build flushed", "pages of the new index, or of the catalog, that were written"),
    ("scans from the tail", "how often a scan began at the oldest page"),
    ("left to the second pass", "pages that the pinning pass left out"),
    ("place lost", "how often the page where the pass was to go on had left the list"),
    ("page locks taken", "to read the state of a page, and to change it"),
    ("longest hold of the mutex", "by a scan, or by one question asked of the buckets"),
    (
        "longest hold, the log at its trigger",
        "the same when the oldest page is as old as it may be before writers wait",
    ),
    ("times a writer found no free frame", "in the instance that is scanned; then it sleeps"),
    ("time for the DDL to flush", "from the first look to the last page on the disk"),
    ("the same, no writers", "with as many dirty pages, and nobody else there"),
    ("the same, idle for long", "nobody was there, and the cleaner has written all other pages"),
    ("bytes written for it", "pages of the index, or its runs"),
    ("transactions per second before", "the median of the seconds before the scan"),
    ("worst second meanwhile", "transactions in the worst whole second of the scan"),
    ("worst / before", "the part of the usual rate that is left"),
    // restart-flush
    ("pages requested per second, first 30 s", "what the law says in its statistics"),
    ("pages flushed per second, first 30 s", "what the disk was given"),
    ("flushed / requested, first 30 s", "1 where the statistics tell the truth"),
    ("longest wait for the disk", "of the queue in which a transaction stands"),
    ("transactions per second, first 30 s", "the mean"),
    ("worst second of the first 30", "transactions in it"),
    ("transactions per second, last 10 s", "the usual rate"),
    ("worst / last 10 s", "the part of the usual rate that is left"),
    // free-pages
    ("pages read per second", "the mean"),
    ("best second", "pages read in it"),
    ("least free frames", "of all instances, at any time"),
    ("times a thread found none", "and had to sleep or look for itself"),
    ("time threads waited for one", "of all threads together"),
    ("longest wait", "of one thread for one frame"),
    ("time of sleeps begun on timers", "by threads that want a frame"),
    ("time the background slept on timers", "of all its threads together"),
    ("runs of the background", "times that a thread which makes frames free ran"),
    ("runs that found nothing to do", "of those"),
    ("frames the background looked at", "to find some to write or to free"),
    ("frames threads looked at", "when they found none free"),
    ("processor time of the background", "of waking up and of looking at frames"),
    ("processor time spent in vain", "by runs with nothing to do and threads that found nothing"),
    // dirty-count
    ("entries looked at per statement", "pages of lists, or counters"),
    ("time to count per statement", "entries by the time of one look"),
    ("longest hold of a mutex", "that queries need too"),
    ("queries that waited per statement", "as many as come while it is held"),
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
    ("rows per second asked for", "as many come"),
    ("rows per second inserted", "the mean while rows come"),
    ("the disk could take, by the formula", "rows per second for ever, with merges in no time"),
    ("worst interval / asked for", "of the intervals that the charts show"),
    ("bytes written per row", "log, pages and runs"),
    ("bytes written per row, by the formula", "with merges that take no time"),
    ("most runs of an index", "a query looks into each"),
    ("merges into a bottom run", "the long ones, of nearly a whole index"),
    ("largest debt of merges", "bytes that merges begun have left to read and write"),
    ("largest debt, by the formula", "twice the bytes of all indexes"),
    ("rows kept back by memtable space", "of those asked for"),
    ("rows kept back by merge debt", "of those asked for"),
    ("rows kept back by the queue of the disk", "of those asked for"),
    ("longest queue of the disk", "that a commit stood in"),
    ("the index is built after", "from the first row that comes"),
];

const SETTINGS: [(&str, &str); 70] = [
    // flush-scan
    ("pages", "dirty pages in the pool"),
    ("own", "pages of the new index among them"),
    ("instances", "parts of the pool, each with lists and a mutex of its own"),
    ("writers", "threads that write"),
    ("tx_ns", "a transaction takes this long when it waits for nothing"),
    ("pages_per_tx", "pages that a transaction reads into free frames and makes dirty"),
    ("step_ns", "one page of a list, or one counter, is looked at"),
    ("section_steps", "a scan lets the mutex go after so many"),
    ("gap_ns", "for so long"),
    ("hold_ns", "anybody else holds the mutex for so long per page"),
    ("poll_ns", "a thread that finds it taken looks again after so long"),
    ("polls", "and sleeps after so many looks"),
    ("wake_ns", "one that was woken runs after about so long"),
    ("io_ns", "the disk reads or writes one page in this time"),
    ("issue_ns", "a cleaner hands one page to the disk in this time"),
    ("io_threads", "threads that hear of ended writes, per instance"),
    ("free_frames", "free frames that a cleaner keeps in each instance"),
    ("page_bytes", "a page"),
    ("disk_bytes_per_sec", "the disk"),
    ("tx_log_bytes", "log that a transaction writes"),
    ("age_eighths", "age of the oldest page at first, in eighths of the log that users may fill"),
    ("mixed", "others' pages that became dirty while the index was built, per page of it"),
    ("recent", "pages in use or beside those written lie among so many of the newest"),
    ("neighbours_pct", "pages a cleaner writes because they lie beside the oldest on disk"),
    ("limit_s", "an experiment ends then"),
    ("rows_indexed_by_evenkeel", "rows of a table whose index is as large"),
    // restart-flush
    ("cleaners", "threads that write pages"),
    ("log_bytes", "the log"),
    ("first_age_pct", "of the log, when recovery ends"),
    ("first_dirty_pages", "dirty pages then"),
    ("hot_pages", "pages that transactions change"),
    ("connections", "threads of users"),
    ("disk_visits", "times that a transaction waits for the disk: for a read, for the log"),
    ("reads", "pages that a transaction reads from the disk"),
    ("io_capacity", "pages per second that the server is told the disk does"),
    ("io_capacity_max", "and at most"),
    ("async_pages", "page writes under way at most, in the reported engine"),
    ("batch_pages", "pages that one of our cleaners writes at once"),
    ("seconds", "shown"),
    // free-pages
    ("frames", "of the pool"),
    ("threads", "that read pages"),
    ("busy_ns", "a thread computes between two pages in a burst"),
    ("quiet_ns", "and between bursts"),
    ("burst_ns", "a burst lasts"),
    ("pause_ns", "the next one begins after"),
    ("dirty_one_in", "one page in so many is changed"),
    ("disk_pages_per_sec", "reads and writes together"),
    ("scan_depth", "frames that a manager looks at in a run"),
    ("sleep_ns", "the sleep of a manager at first, and at most"),
    ("adjust_ns", "it changes by so much"),
    ("retry_ns", "a thread that finds no frame sleeps so long, then twice as long"),
    ("retry_most_ns", "and at most"),
    ("run_ns", "processor time of going to sleep and waking up"),
    // dirty-count
    ("tables", "there are"),
    ("statements", "that rebuild an index"),
    ("queries_per_sec", "each needs the mutex of one instance"),
    // fan-out
    ("rows", "of the table"),
    ("chunks", "of the largest division"),
    ("devices", "that send rows"),
    ("device_life", "a device is in service for one part of the time in so many"),
    ("late_rows", "an order number may be so many rows late"),
    ("queries", "of each kind"),
    ("page_entries", "entries in a page of an index"),
    // scale
    ("scale", "sizes and times are divided by it"),
    ("generation_bytes", "a memtable that becomes runs"),
    ("merged_bytes_per_core", "a thread merges, its computing alone"),
    ("slow_disk_bytes_per_sec", "the slow disk"),
    ("slow_disk_ios_per_sec", "its I/Os"),
    ("fast_disk_bytes_per_sec", "the fast disk"),
    ("fast_disk_ios_per_sec", "its I/Os"),
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
