//! Manifest records, and the part of a checkpoint that lists runs: both are a list of edits.
//!
//! ```text
//! edits, each: op u8, then
//!  1 ADD_FILE     file varint     its slices are live
//!  2 REMOVE_FILE  file varint     no slice of it is live
//!  3 REMOVE_RUN   index varint, run varint   slices of this run are dead (their file may live on)
//!  4 FLUSHED      generation varint   this generation and all before it are in runs
//!  5 DROP_INDEX   index varint    all slices of the index, of any file, are dead
//!  6 NEXT_FILE    file varint     file numbers below were given out
//!  7 PLACE        index, file, run, oldest and newest generation, varints   the slice of the index
//!                 in the file is (also) one of this run
//!  8 TRIM         index varint, run varint, low bytes   entries of the run below this are dead
//! ```

use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{Generation, IndexId, Result};

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestOp {
    /// The slices of a file are live.
    AddFile(u64),
    /// No slice of a file is live.
    RemoveFile(u64),
    /// The slices of a run are dead.
    RemoveRun(IndexId, u64),
    /// A generation and all before it are in runs.
    Flushed(Generation),
    /// Every slice of an index is dead.
    DropIndex(IndexId),
    /// File numbers below this were used.
    NextFile(u64),
    /// The slice of an index in a file belongs to a run for which it was not written.
    Place {
        /// Its index.
        index: IndexId,
        /// Its file.
        file: u64,
        /// The run.
        run: u64,
        /// Oldest generation of the run.
        age_low: Generation,
        /// Newest generation of the run.
        age_high: Generation,
    },
    /// Entries of a run below this key are dead.
    Trim(IndexId, u64, Vec<u8>),
}

/// Encodes edits.
pub fn encode_manifest(ops: &[ManifestOp]) -> Vec<u8> {
    let mut out = Vec::new();
    for op in ops {
        let (kind, numbers, low): (u8, &[u64], Option<&[u8]>) = match op {
            ManifestOp::AddFile(file) => (1, &[*file], None),
            ManifestOp::RemoveFile(file) => (2, &[*file], None),
            ManifestOp::RemoveRun(index, run) => (3, &[u64::from(index.0), *run], None),
            ManifestOp::Flushed(generation) => (4, &[generation.0], None),
            ManifestOp::DropIndex(index) => (5, &[u64::from(index.0)], None),
            ManifestOp::NextFile(file) => (6, &[*file], None),
            ManifestOp::Place { index, file, run, age_low, age_high } => {
                (7, &[u64::from(index.0), *file, *run, age_low.0, age_high.0], None)
            }
            ManifestOp::Trim(index, run, low) => (8, &[u64::from(index.0), *run], Some(low)),
        };
        out.push(kind);
        numbers.iter().for_each(|number| put_varint(&mut out, *number));
        if let Some(low) = low {
            put_bytes(&mut out, low);
        }
    }
    out
}

/// Decodes edits. # Errors: `BadEncoding`; `NewerFormat` for an unknown edit.
pub fn decode_manifest(body: &[u8]) -> Result<Vec<ManifestOp>> {
    let mut r = Reader::new(body, "manifest");
    let mut ops = Vec::new();
    while !r.is_empty() {
        ops.push(match r.u8()? {
            1 => ManifestOp::AddFile(r.varint()?),
            2 => ManifestOp::RemoveFile(r.varint()?),
            3 => ManifestOp::RemoveRun(IndexId(r.varint32()?), r.varint()?),
            4 => ManifestOp::Flushed(Generation(r.varint()?)),
            5 => ManifestOp::DropIndex(IndexId(r.varint32()?)),
            6 => ManifestOp::NextFile(r.varint()?),
            7 => ManifestOp::Place {
                index: IndexId(r.varint32()?),
                file: r.varint()?,
                run: r.varint()?,
                age_low: Generation(r.varint()?),
                age_high: Generation(r.varint()?),
            },
            8 => ManifestOp::Trim(IndexId(r.varint32()?), r.varint()?, r.bytes()?.to_vec()),
            op => return Err(r.newer("edit", op)),
        });
    }
    Ok(ops)
}
