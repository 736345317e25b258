//! Every byte of the catalog's leaves is changed, with the page's checksum corrected: the directory
//! is refused, or opens, is read and written to, without a panic. Rows of the catalog name other
//! rows (tables, columns, indexes, trees, pages), so what decodes may still be impossible. The
//! release ladder changes each byte in `EVENKEEL_CATALOG_CHANGES` ways.

use evenkeel_base::DatabaseId;
use evenkeel_format::page;
use evenkeel_format::superblock::Superblock;
use evenkeel_io::MemEnv;
use evenkeel_trust::{faulty, fuzz, panics, stores};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const PAGE: usize = 4096;
/// Names of the catalog's rows of a store: a page with one of them is a leaf of the catalog. The
/// rows of the tables themselves do not have these bytes.
const NAMES: [&[u8]; 4] = [b"to_parent", b"by_stranger", b"chunked", b"by_note"];

fn has_a_name(image: &[u8]) -> bool {
    NAMES.iter().any(|name| image.windows(name.len()).any(|bytes| bytes == *name))
}

struct Catalog {
    files: Arc<MemEnv>,
    database: DatabaseId,
    /// The file and the offset of each leaf.
    leaves: Vec<(String, usize)>,
}

fn catalog() -> Catalog {
    let files = stores::store(0, true).files;
    let slots = faulty::content(&*files, "evenkeel.super");
    let database = Superblock::choose(&slots).expect("valid").database_id;
    let mut leaves = Vec::new();
    for path in faulty::paths(&*files).into_iter().filter(|path| path.starts_with("pages/")) {
        let bytes = faulty::content(&*files, &path);
        let images = bytes.chunks(PAGE).enumerate().filter(|(_, image)| has_a_name(image));
        leaves.extend(images.map(|(n, _)| (path.clone(), n * PAGE)));
    }
    Catalog { files, database, leaves }
}

/// The bytes of a leaf, without those in the middle of free space.
fn used(catalog: &Catalog, (path, start): &(String, usize)) -> Vec<usize> {
    let bytes = faulty::content(&*catalog.files, path);
    let image = &bytes[*start..*start + PAGE];
    let near = |at: usize| &image[at.saturating_sub(8)..(at + 8).min(PAGE)];
    (page::HEADER_BYTES..PAGE).filter(|at| near(*at).iter().any(|byte| *byte != 0)).collect()
}

/// Opens the directory with one byte changed. Returns whether it opens and can be read.
fn opens_with(catalog: &Catalog, leaf: &(String, usize), at: usize, change: u8) -> bool {
    let (path, start) = leaf;
    let env = catalog.files.fork();
    let mut bytes = faulty::content(&env, path);
    let image = &mut bytes[*start..*start + PAGE];
    image[at] ^= change;
    page::seal(image, catalog.database);
    faulty::replace(&env, path, &bytes);
    fuzz::open_as(Arc::new(env), false).is_ok()
}

#[test]
fn no_changed_byte_of_the_catalog_panics() {
    let ways = std::env::var("EVENKEEL_CATALOG_CHANGES").ok().and_then(|v| v.parse().ok());
    let changes = [0x01, 0xff, 0x80, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40];
    let catalog = catalog();
    assert!(!catalog.leaves.is_empty(), "no leaf of the catalog");
    let (mut opened, mut refused, mut failed) = (0, 0, Vec::new());
    for leaf in &catalog.leaves {
        for at in used(&catalog, leaf) {
            for change in changes.iter().take(ways.unwrap_or(1)) {
                let before = panics::count();
                let open = AssertUnwindSafe(|| opens_with(&catalog, leaf, at, *change));
                let done = catch_unwind(open);
                let panicked = done.is_err() || panics::count() > before;
                if panicked {
                    failed.push(format!("{leaf:?}: byte {at} changed by {change:#x}"));
                }
                match done {
                    Ok(true) => opened += 1,
                    _ => refused += 1,
                }
            }
        }
    }
    println!("{} leaves: {opened} changes opened, {refused} refused", catalog.leaves.len());
    assert!(failed.is_empty(), "panics: {failed:#?}");
    // Names of columns may change; what else is in the catalog is looked at.
    assert!(refused >= 200 && opened >= 200, "{opened} opened, {refused} refused");
}
