//! Checks that the figures and pictures of `docs/lab.md` and `docs/scale.md` are the results of the
//! experiments at the sizes named there. `EVENKEEL_LAB_DOCS=write cargo test -p evenkeel-lab --test
//! docs` writes them.

use evenkeel_lab::scale::paper;
use evenkeel_lab::{
    Outcome, dirty_count, fan_out, flush_scan, free_pages, report, restart_flush, scale,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

static PAGE: Mutex<()> = Mutex::new(());

/// The page with a table in the place of this name.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has a place for the table");
    let (_, after) = rest.split_once(&end).expect("the place has an end");
    format!("{before}{begin}\n{table}\n{end}{after}")
}

/// Compares a file with what it must hold, or writes it.
fn keep(path: &Path, wanted: &str, drifted: &mut Vec<PathBuf>) {
    if std::env::var("EVENKEEL_LAB_DOCS").is_ok_and(|v| v == "write") {
        fs::write(path, wanted).expect("written");
    } else if fs::read_to_string(path).unwrap_or_default() != wanted {
        drifted.push(path.to_path_buf());
    }
}

fn check(outcome: &Outcome) {
    check_in(outcome, "lab.md");
}

fn check_in(outcome: &Outcome, page: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut drifted = Vec::new();
    for chart in &outcome.charts {
        let name = format!("lab/{}-{}.svg", outcome.experiment, chart.id);
        keep(&docs.join(name), &report::svg(chart), &mut drifted);
    }
    let path = docs.join(page);
    let _one_at_a_time = PAGE.lock().expect("no other test failed while writing");
    let page = fs::read_to_string(&path).expect("the page is there");
    keep(&path, &with_table(&page, outcome.experiment, &outcome.markdown()), &mut drifted);
    assert!(drifted.is_empty(), "out of date, see the head of this file: {drifted:?}");
}

#[test]
fn flush_scan_prints_what_its_page_shows() {
    check(&flush_scan::run(&flush_scan::Setup::new(1, 42)).expect("it runs"));
}

#[test]
fn restart_flush_prints_what_its_page_shows() {
    check(&restart_flush::run(&restart_flush::Setup::new(1, 42)));
}

#[test]
fn free_pages_prints_what_its_page_shows() {
    check(&free_pages::run(&free_pages::Setup::new(1, 42)));
}

#[test]
fn dirty_count_prints_what_its_page_shows() {
    check(&dirty_count::run(&dirty_count::Setup::new(1, 42)));
}

#[test]
fn fan_out_prints_what_its_page_shows() {
    check(&fan_out::run(&fan_out::Setup::new(1, 42)).expect("it runs"));
}

/// A twentieth of the sizes and of the time: the same ratios, and quick.
#[test]
fn scale_prints_what_its_page_shows() {
    check_in(&scale::experiment::run(20, 42), "scale.md");
}

/// The formulas, for sizes that cannot be tested.
#[test]
fn scale_on_paper_prints_what_its_page_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale.md");
    let _one_at_a_time = PAGE.lock().expect("no other test failed while writing");
    let mut page = fs::read_to_string(&path).expect("the page is there");
    for (name, table) in [
        ("costs", paper::costs()),
        ("debts", paper::debts()),
        ("memories", paper::memories()),
        ("restarts", paper::restarts()),
    ] {
        page = with_table(&page, name, &(table + "\n"));
    }
    let mut drifted = Vec::new();
    keep(&path, &page, &mut drifted);
    assert!(drifted.is_empty(), "out of date, see the head of this file: {drifted:?}");
}
