//! The second home of the checkpoint record: the blocks of the log that hold the record of the
//! checkpoint that the superblock names, copied to one of two files in turn.
//!
//! Lifecycle of a copy: 1. the record is durable in the log, 2. the copy is durable in the file
//! that does not hold the present copy, 3. the superblock names the checkpoint. A crash therefore
//! leaves both homes of the checkpoint that counts. An open puts blocks that the log has lost back
//! from the copy, before anything reads the log; a copy that is lost is written again by the next
//! checkpoint.
//!
//! Only the checkpointer, the creation of a database and the open call this, one at a time.

use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Lsn, Result};
use evenkeel_format::checkpoint_copy::{BLOCKS_MAX, CheckpointCopy, FILES, HEADER_BYTES};
use evenkeel_format::superblock::Superblock;
use evenkeel_format::wal::{BLOCK, block_of};
use evenkeel_io::{OpenMode, Runtime};
use evenkeel_log::{Log, LostBlock, lost_blocks, put_blocks};

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = HEADER_BYTES as u64 + BLOCKS_MAX * BLOCK as u64;

/// The two files.
pub(crate) struct CheckpointCopies {
    state: Mutex<State>,
    /// Problems that the open found.
    found: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The file with the copy of the checkpoint that the superblock names.
    present: Option<usize>,
    /// The names of the files are durable.
    is_named: [bool; 2],
}

/// The homes of a checkpoint record.
struct Homes {
    /// The file with the copy, if there is one.
    copy: Option<(usize, CheckpointCopy)>,
    /// Blocks that the log has lost.
    lost: Vec<LostBlock>,
    problems: Vec<String>,
}

impl CheckpointCopies {
    /// For a new database.
    pub(crate) fn new() -> CheckpointCopies {
        CheckpointCopies { state: Mutex::default(), found: Vec::new() }
    }

    /// Puts back what one home of the checkpoint record has lost and the other one holds.
    ///
    /// # Errors
    /// `NewerFormat` for a copy of a newer version; those of the log and of the environment.
    pub(crate) fn open(rt: &Runtime, superblock: &Superblock) -> Result<CheckpointCopies> {
        let Homes { copy, lost, problems } = homes(rt, None, superblock)?;
        let present = copy.as_ref().map(|(file, _)| *file);
        if let Some((_, copy)) = copy.filter(|_| !lost.is_empty()) {
            put_blocks(rt, copy.first_block, &copy.blocks, &lost)?;
        }
        problems.iter().for_each(|problem| log::warn!("{problem}"));
        let state = Mutex::new(State { present, ..State::default() });
        Ok(CheckpointCopies { state, found: problems })
    }

    /// Problems that the open found, and has put right or the next checkpoint will.
    pub(crate) fn found(&self) -> &[String] {
        &self.found
    }

    /// Copies the record that lies from `checkpoint` up to `behind`, which is durable, before the
    /// superblock names it, and returns the file. There is no copy if the disk is full, or if the
    /// record is longer than a copy may be: a checkpoint must be possible then, too.
    ///
    /// # Errors
    /// Those of the log; a failed write or sync latches `rt.health`.
    pub(crate) fn keep(
        &self,
        rt: &Runtime,
        log: &Log,
        checkpoint: Lsn,
        behind: Lsn,
    ) -> Result<Option<usize>> {
        let (first_block, blocks) = log.read_blocks(checkpoint, behind)?;
        if (blocks.len() / BLOCK) as u64 > BLOCKS_MAX {
            return Ok(None);
        }
        let copy = CheckpointCopy { checkpoint, first_block, blocks };
        let State { present, is_named } = *self.state.lock();
        let is_planted = fault_injection::is(Fault::OneCheckpointCopy);
        let file = present.map_or(0, |file| if is_planted { file } else { 1 - file });
        match write(rt, file, &copy, is_named[file]) {
            Ok(()) => {
                self.state.lock().is_named[file] = true;
                Ok(Some(file))
            }
            Err(error) if error.code().is_shortage() => Ok(None),
            Err(error) => Err(rt.health.fail(error)),
        }
    }

    /// The superblock names the checkpoint whose copy `keep` has written to this file.
    pub(crate) fn named(&self, file: Option<usize>) {
        if file.is_some() {
            self.state.lock().present = file;
        }
    }
}

fn write(rt: &Runtime, file: usize, copy: &CheckpointCopy, is_named: bool) -> Result<()> {
    let to = rt.env.open(FILES[file], OpenMode::READ_WRITE)?;
    to.write_at(&copy.encode(rt.database()), 0)?;
    to.sync()?;
    if is_named { Ok(()) } else { rt.env.sync_dir("") }
}

fn read(rt: &Runtime, file: usize) -> Result<Option<CheckpointCopy>> {
    let open = match rt.env.open(FILES[file], OpenMode::READ) {
        Err(error) if error.code() == Code::FileMissing => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; open.len()?.min(FILE_BYTES_MAX) as usize];
    open.read_at(&mut bytes, 0)?;
    CheckpointCopy::decode(&bytes, rt.database()).map_err(|error| error.with("file", FILES[file]))
}

/// Reads both homes, of an open log or before it is opened. A superblock that promises no copy has
/// none; a copy that a crash left before the superblock named its checkpoint does not count.
fn homes(rt: &Runtime, log: Option<&Log>, superblock: &Superblock) -> Result<Homes> {
    let mut homes = Homes { copy: None, lost: Vec::new(), problems: Vec::new() };
    if !superblock.has_checkpoint_copy() {
        return Ok(homes);
    }
    for file in 0..FILES.len() {
        let is_named = |copy: &CheckpointCopy| {
            let lsn = superblock.checkpoint;
            copy.checkpoint == lsn && copy.first_block == block_of(lsn)
        };
        let copy = read(rt, file)?.filter(is_named);
        homes.copy = homes.copy.or(copy.map(|copy| (file, copy)));
    }
    let Some((file, copy)) = &homes.copy else {
        let [first, second] = FILES;
        homes.problems.push(format!(
            "{first}, {second}: neither holds a copy of the checkpoint record (lsn={}); the record \
             in the log counts",
            superblock.checkpoint
        ));
        return Ok(homes);
    };
    let lost = match log {
        Some(log) => log.lost_blocks(copy.first_block, &copy.blocks),
        None => lost_blocks(rt, copy.first_block, &copy.blocks),
    };
    homes.lost = match lost {
        // Other records are missing with a segment: recovery says which one.
        Err(error) if error.code() == Code::LogMissing => Vec::new(),
        lost => lost?,
    };
    for LostBlock { number, path, offset } in &homes.lost {
        homes.problems.push(format!(
            "{path}: block {number} of the checkpoint record is damaged (offset={offset}); its \
             copy in {} counts",
            FILES[*file]
        ));
    }
    Ok(homes)
}

/// Problems of both homes now; no checkpoint is taken meanwhile.
///
/// # Errors
/// As `CheckpointCopies::open`.
pub(crate) fn problems(rt: &Runtime, log: &Log, superblock: &Superblock) -> Result<Vec<String>> {
    Ok(homes(rt, Some(log), superblock)?.problems)
}
