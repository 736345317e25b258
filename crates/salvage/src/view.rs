//! `evenkeel dump --pages`, `--log`, `--runs`, `--catalog`: decoded structures, one line each, read
//! without the engine. Damage is shown in its place and ends nothing.

use crate::catalog::each_entry;
use crate::log::Log;
use crate::picture::Picture;
use crate::source::{From, Source, read_file};
use evenkeel_base::{Code, Error, IndexId, Lsn, PageNo, Result};
use evenkeel_format::catalog::{
    ColumnEntry, ForeignKeyColumnEntry, ForeignKeyEntry, ForeignKeyParentEntry, IndexEntry,
    StatisticsEntry, TableEntry, decode_counter, entry_kind,
};
use evenkeel_format::chunks::{ChunkEntry, ChunkingEntry};
use evenkeel_format::node::Node;
use evenkeel_format::overflow::{KIND_OVERFLOW, OverflowPage};
use evenkeel_format::page::{HEADER_BYTES, PageKind, RawPage};
use evenkeel_format::record::{LeafChange, RecordKind, decode_revert, decode_txn, page_ops};
use evenkeel_format::rows::each_row;
use evenkeel_format::run::{
    ENVELOPE, EnvelopeId, EnvelopeKind, Trailer, decode_footer, decode_manifest, open,
};
use evenkeel_format::superblock::decode_part;
use evenkeel_format::text::hex;
use evenkeel_io::RealEnv;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Largest run file whose footer is read.
const RUN_BYTES_MAX: u64 = 1 << 40;
/// Bytes of a key shown, at most.
const KEY_BYTES: usize = 24;

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Pages from the first to the last one given.
    Pages(u64, u64),
    /// Records of the log from the redo position on.
    Log,
    /// Run files and their slices.
    Runs,
    /// Entries of the catalog.
    Catalog,
}

fn wrote(done: std::io::Result<()>) -> Result<()> {
    done.map_err(|e| Error::new(Code::WriteFailed).with("file", "standard output").with("why", e))
}

/// The first bytes of a key as hexadecimal digits.
fn short(key: &[u8]) -> String {
    match key.get(..KEY_BYTES) {
        Some(head) if key.len() > KEY_BYTES => format!("{}..", hex(head)),
        _ => hex(key),
    }
}

impl View {
    /// Writes the lines.
    ///
    /// # Errors
    /// `NotADatabase` and others of opening the files; `PageBeyond` for pages that do not exist;
    /// those of writing.
    pub fn write(self, dir: &Path, out: &mut dyn Write) -> Result<()> {
        let source = Source::open(Arc::new(RealEnv::new(dir)))?;
        match self {
            View::Pages(first, last) => pages(&source, first, last, out),
            View::Log => log(&source, out),
            View::Runs => runs(&source, out),
            View::Catalog => catalog(source, out),
        }
    }
}

fn pages(source: &Source, first: u64, last: u64, out: &mut dyn Write) -> Result<()> {
    let end = source.end_page();
    if first >= end {
        return Err(Error::new(Code::PageBeyond).with("page", first).with("pages", end));
    }
    for number in (first..=last.min(end - 1)).map(PageNo) {
        let bytes = source.raw_page(number);
        let line = match bytes.and_then(|bytes| page(source, number, &bytes)) {
            Ok(line) => line,
            Err(error) if error.code() == Code::PageUnwritten => format!("page {number}: empty"),
            Err(error) => match source.page(number) {
                Some((copy, From::Copy | From::OldCopy)) => {
                    let copy = page(source, number, &copy)?;
                    format!("page {number}: {error}; in the doublewrite file: {copy}")
                }
                _ => format!("page {number}: {error}"),
            },
        };
        wrote(writeln!(out, "{line}"))?;
    }
    Ok(())
}

fn page(source: &Source, number: PageNo, bytes: &[u8]) -> Result<String> {
    let verified = RawPage(bytes).verify(number, source.database)?;
    let header = verified.header();
    let (tree, lsn, incarnation) = (header.tree, header.lsn, header.incarnation);
    let head = format!("page {number}: lsn {lsn} tree {tree} incarnation {incarnation}");
    let payload = &bytes[HEADER_BYTES..];
    Ok(match header.kind {
        PageKind::SpaceMap => {
            let slots = 0..source.geometry.map_slots() as u16;
            let found = slots.filter_map(|slot| source.geometry.descriptor(payload, slot).ok());
            let used = found.filter(|d| d.state as u8 != 0).count();
            format!("{head} map: {used} extents in use")
        }
        PageKind::Owners => {
            let pages = 0..source.geometry.extent_pages();
            let owners = pages.filter_map(|page| source.geometry.owner(payload, page).ok());
            format!("{head} owners: {} pages in use", owners.filter(|o| o.0 != 0).count())
        }
        PageKind::Tree if payload[0] == KIND_OVERFLOW => match OverflowPage::parse(payload) {
            Ok(part) => {
                let next = part.next.map_or("last".to_string(), |next| format!("next {next}"));
                let (position, len) = (part.position, part.data.len());
                let owner = (part.owner.txn.0, part.owner.undo_no.0);
                format!("{head} overflow: owner {owner:?} part {position}, {len} bytes, {next}")
            }
            Err(error) => format!("{head} overflow: {error}"),
        },
        PageKind::Tree => match Node::parse(payload) {
            Ok(node) => {
                let high = node.high().map_or("end".to_string(), short);
                let what = if node.is_leaf() { "leaf" } else { "inner" };
                format!(
                    "{head} {what}: level {} slots {} dead {} free {} keys {} to {high}",
                    node.level(),
                    node.count(),
                    if node.is_leaf() { node.dead_count() } else { 0 },
                    node.free_bytes(),
                    short(node.low())
                )
            }
            Err(_) => format!("{head} freed"),
        },
    })
}

fn log(source: &Source, out: &mut dyn Write) -> Result<()> {
    let log = Log::open(source)?;
    for problem in &log.problems {
        wrote(writeln!(out, "{problem}"))?;
    }
    let from = source.superblock.as_ref().map(|s| s.redo).or_else(|| log.first_record());
    let Some(from) = from else { return wrote(writeln!(out, "no log")) };
    let reach = log.read(from, &mut |lsn, kind, body| {
        let line = record(lsn, kind, body)
            .unwrap_or_else(|error| format!("{lsn} {kind:?} {} bytes: {error}", body.len()));
        wrote(writeln!(out, "{line}"))
    });
    let end = match reach.lost_to {
        None => format!("{} end of the log: epoch {}", reach.end, reach.epoch),
        Some(lost) => format!("{} the log is damaged; it went to {lost} at least", reach.end),
    };
    wrote(writeln!(out, "{end}"))
}

fn record(lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<String> {
    let what = match kind {
        RecordKind::Page => {
            let mut ops = String::new();
            for op in page_ops(body) {
                let op = op?;
                ops.push_str(&format!(" {}:{}", op.page, op_name(op.op)));
            }
            format!("ops{ops}")
        }
        RecordKind::Row | RecordKind::Rows => {
            let mut rows = Vec::new();
            each_row(kind, body, &mut |change, logical| {
                if rows.is_empty() {
                    rows.push(format!(
                        "page {} tree {} table {} transaction {}",
                        change.page, change.tree, logical.table, change.stamp.txn
                    ));
                }
                let (what, key) = (logical.kind, short(change.key));
                let len = change.row.len();
                rows.push(format!("{what:?} {} key {key} row of {len}", change.stamp.undo_no));
                Ok(())
            })?;
            rows.join(", ")
        }
        RecordKind::Revert => {
            let change = LeafChange::decode(body)?;
            let (page, tree) = (change.page, change.tree);
            let stamp = decode_revert(change.logical)?;
            format!(
                "page {page} tree {tree} key {} of transaction {} operation {}",
                short(change.key),
                stamp.txn,
                stamp.undo_no
            )
        }
        RecordKind::Commit | RecordKind::Abort | RecordKind::End => {
            format!("transaction {}", decode_txn(body)?.0)
        }
        RecordKind::Prepare => {
            let (txn, xid) = decode_txn(body)?;
            format!("transaction {txn} xid {}", short(xid))
        }
        RecordKind::Manifest => format!("{:?}", decode_manifest(body)?),
        RecordKind::Checkpoint => {
            let (part, parts, bytes) = decode_part(body)?;
            format!("part {} of {parts}, {} bytes", part + 1, bytes.len())
        }
    };
    Ok(format!("{lsn} {kind:?} {what}"))
}

fn op_name(op: u8) -> String {
    let name = match op {
        0 => "format",
        1 => "segments",
        2 => "extent",
        3 => "used",
        4 => "owner",
        5 => "unlogged",
        32 => "image",
        33 => "insert-child",
        34 => "set-child",
        35 => "remove-child",
        36 => "truncate",
        37 => "fences",
        38 => "compact",
        39 => "mark-dead",
        40 => "overflow",
        41 => "next",
        42 => "prefix",
        other => return format!("op-{other}"),
    };
    name.to_string()
}

fn runs(source: &Source, out: &mut dyn Write) -> Result<()> {
    for name in source.env().list("runs")? {
        let number = name.strip_suffix(".run").and_then(|digits| digits.parse::<u64>().ok());
        let Some(number) = number else { continue };
        if let Err(error) = run(source, number, out) {
            if error.code() == Code::WriteFailed {
                return Err(error);
            }
            wrote(writeln!(out, "runs/{name}: {error}"))?;
        }
    }
    Ok(())
}

fn run(source: &Source, number: u64, out: &mut dyn Write) -> Result<()> {
    let path = format!("runs/{number:08}.run");
    let bytes = read_file(source.env(), &path, RUN_BYTES_MAX)?;
    let damaged =
        |why: &'static str| Error::new(Code::RunDamaged).with("file", &path).with("why", why);
    let tail = bytes.len().checked_sub(Trailer::LEN).and_then(|at| bytes.get(at..));
    let tail = tail.ok_or_else(|| damaged("ends before its trailer"))?;
    let trailer = Trailer::decode(tail, number, source.database)?;
    let footer = usize::try_from(trailer.footer_position).ok().and_then(|at| bytes.get(at..));
    let id = EnvelopeId {
        database: source.database,
        kind: EnvelopeKind::Footer,
        file: number,
        position: trailer.footer_position,
        index: IndexId::ZERO,
        number: 0,
    };
    let envelope = open(id, footer.ok_or_else(|| damaged("ends before its footer"))?)?;
    let raw = match envelope.is_lz4 {
        false => envelope.stored.to_vec(),
        true => lz4_flex::block::decompress(envelope.stored, envelope.raw_len)
            .map_err(|_| damaged("its footer does not decompress"))?,
    };
    let slices = decode_footer(&raw)?;
    let (bytes, count) = (bytes.len(), slices.len());
    wrote(writeln!(out, "{path}: {bytes} bytes, {count} slices, envelope heads of {ENVELOPE}"))?;
    for slice in slices {
        wrote(writeln!(
            out,
            "{path}: index {} run {} generations {} to {}: {} blocks, {} entries, {} deletes, keys \
             {} to {}",
            slice.index,
            slice.run,
            slice.age_low,
            slice.age_high,
            slice.blocks,
            slice.entries,
            slice.deletes,
            short(&slice.min_key),
            short(&slice.max_key)
        ))?;
    }
    Ok(())
}

fn catalog(source: Source, out: &mut dyn Write) -> Result<()> {
    let picture = Picture::read(source)?;
    let catalog = each_entry(&picture, &mut |entry| {
        let (table, kind, item) = entry.key;
        let body = &entry.body;
        let text = match kind {
            entry_kind::TABLE => TableEntry::decode(body).map(|e| format!("table {e:?}")),
            entry_kind::COLUMN => ColumnEntry::decode(body).map(|e| format!("column {e:?}")),
            entry_kind::INDEX => IndexEntry::decode(body).map(|e| format!("index {e:?}")),
            entry_kind::COUNTER => decode_counter(body).map(|n| format!("counter {n}")),
            entry_kind::STATISTICS => {
                StatisticsEntry::decode(body).map(|e| format!("statistics {e:?}"))
            }
            entry_kind::FOREIGN_KEY => {
                ForeignKeyEntry::decode(body).map(|e| format!("foreign key {e:?}"))
            }
            entry_kind::FOREIGN_KEY_COLUMN => {
                ForeignKeyColumnEntry::decode(body).map(|e| format!("foreign key column {e:?}"))
            }
            entry_kind::FOREIGN_KEY_PARENT => {
                ForeignKeyParentEntry::decode(body).map(|_| "foreign key parent".to_string())
            }
            entry_kind::CHUNKING => ChunkingEntry::decode(body).map(|e| format!("chunking {e:?}")),
            entry_kind::CHUNK => ChunkEntry::decode(body).map(|e| format!("chunk {e:?}")),
            other => Ok(format!("kind {other}: {}", short(body))),
        };
        let text = text.unwrap_or_else(|error| error.to_string());
        wrote(writeln!(out, "table {table} item {item} name {:?}: {text}", entry.name))
    })?;
    for lost in &catalog.lost {
        wrote(writeln!(out, "lost {lost}"))?;
    }
    for problem in catalog.problems.iter().chain(&picture.problems) {
        wrote(writeln!(out, "{problem}"))?;
    }
    Ok(())
}
