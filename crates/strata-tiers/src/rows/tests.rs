//! The reader past the page cache against the plain one, over reads that are cut short, interrupted, late and out of order.

use super::io::BlockIo;
use super::{Counters, DirectReader, MappedReader, TableAt};
use bytes::Bytes;
use proptest::prelude::*;
use std::io;
use std::sync::{Arc, Mutex};
use strata_model::{RowReader, StorageError};
use strata_quant::DType;

const BLOCK: u64 = 512;

/// What happens to a read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Only this share of the bytes, in 256ths, comes.
    Short(u8),
    Errno(i32),
}

/// A file in memory whose reads end in an order and a way that a script decides.
struct Scripted {
    file: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    started: Vec<(usize, u64, usize, usize)>,
    sent: usize,
    faults: Box<dyn FnMut(u64) -> Fault + Send>,
    wait_fails: bool,
    /// Reads that ended, for tests: offset and length asked for.
    log: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Scripted {
    fn new(file: Vec<u8>, depth: usize, buffer: usize, faults: impl FnMut(u64) -> Fault + Send + 'static) -> Scripted {
        Scripted {
            file,
            buffers: vec![vec![0xAA; buffer]; depth],
            started: Vec::new(),
            sent: 0,
            faults: Box::new(faults),
            wait_fails: false,
            log: Arc::default(),
        }
    }
}

impl BlockIo for Scripted {
    fn depth(&self) -> usize {
        self.buffers.len()
    }

    fn buffer_len(&self) -> usize {
        self.buffers[0].len()
    }

    fn start(&mut self, slot: usize, offset: u64, at: usize, len: usize) -> io::Result<()> {
        assert!(offset.is_multiple_of(BLOCK) && (at as u64).is_multiple_of(BLOCK) && (len as u64).is_multiple_of(BLOCK) && len > 0);
        assert!(at + len <= self.buffers[slot].len(), "within the buffer");
        assert!(self.started.iter().all(|s| s.0 != slot), "a slot has one read");
        self.started.push((slot, offset, at, len));
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.sent = self.started.len();
        Ok(())
    }

    fn wait(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        if self.wait_fails {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        assert!(self.sent > 0, "nothing that was sent is waited for");
        // the newest first: order must not matter
        let (slot, offset, at, len) = self.started.remove(self.sent - 1);
        self.sent -= 1;
        self.log.lock().unwrap().push((offset, len));
        let left = self.file.len().saturating_sub(offset as usize).min(len);
        let came = match (self.faults)(offset) {
            Fault::None => left,
            Fault::Short(share) => left * usize::from(share) / 256,
            Fault::Errno(e) => return Ok((slot, Err(io::Error::from_raw_os_error(e)))),
        };
        self.buffers[slot][at..at + came].copy_from_slice(&self.file[offset as usize..][..came]);
        Ok((slot, Ok(came)))
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        assert!(self.started.iter().all(|s| s.0 != slot), "a buffer is read while the system writes it");
        &self.buffers[slot]
    }
}

/// A file with `rows` rows of 160 values in IQ4_NL, 90 bytes each, from `offset` to its very end.
fn table(rows: u64, offset: u64) -> (Vec<u8>, TableAt) {
    let table = TableAt { file: "model.gguf".into(), name: "table".into(), dtype: DType::IQ4_NL, cols: 160, rows, offset };
    let mut file = vec![0xEEu8; offset as usize];
    for i in 0..rows * 5 {
        file.extend_from_slice(&[(i % 251) as u8, 0x20 | (i % 7) as u8]);
        file.extend((0..16u64).map(|j| (i * 31 + j * 17 + (i >> 8)) as u8));
    }
    (file, table)
}

fn twin(file: &[u8], table: &TableAt) -> MappedReader {
    MappedReader::new(table.clone(), Bytes::copy_from_slice(&file[table.offset as usize..]), Arc::default())
}

fn direct(io: Scripted, table: &TableAt, cache: u64) -> (DirectReader, Arc<Counters>) {
    let counters = Arc::<Counters>::default();
    (DirectReader::with(Box::new(io), table.clone(), BLOCK, cache, Arc::clone(&counters)), counters)
}

fn values(reader: &mut dyn RowReader, rows: &[u64]) -> Result<Vec<u32>, StorageError> {
    let mut out = vec![f32::NAN; rows.len() * 160];
    reader.collect(rows, &mut out)?;
    Ok(out.iter().map(|v| v.to_bits()).collect())
}

proptest! {
    /// Whatever is requested, collected, cached, cut short or interrupted, the values are those of the plain reader.
    #[test]
    fn values_are_the_naive_twins(
        offset in 0u64..1500,
        depth in 1usize..6,
        cache in prop_oneof![Just(0u64), Just(600), Just(1 << 20)],
        calls in prop::collection::vec((prop::collection::vec(0u64..300, 0..40), 0u8..4), 1..8),
        faults in prop::collection::vec(prop_oneof![3 => Just(Fault::None), 2 => (0u8..=255).prop_map(Fault::Short), 1 => Just(Fault::Errno(libc::EINTR)), 1 => Just(Fault::Errno(libc::EAGAIN))], 1..40),
    ) {
        let (file, t) = table(300, offset);
        let mut n = 0;
        let script = move |_| {
            n += 1;
            // a read of which nothing came is the end of the file: not one of these faults
            match faults[n % faults.len()] {
                Fault::Short(share) if n % 3 == 0 => Fault::Short(share.max(140)),
                Fault::Short(_) => Fault::None,
                f if n % 2 == 0 => f,
                _ => Fault::None,
            }
        };
        let mut plain = twin(&file, &t);
        let (mut reader, counters) = direct(Scripted::new(file, depth, 1024, script), &t, cache);
        let mut asked = 0;
        for (rows, how) in calls {
            match how {
                0 => {}
                1 => reader.request(&rows),
                // a hint may be wrong, and given twice
                2 => reader.request(&rows.iter().map(|r| (r + 1) % 300).collect::<Vec<_>>()),
                _ => { reader.request(&rows); reader.request(&rows[..rows.len() / 2]); }
            }
            asked += rows.len() as u64;
            prop_assert_eq!(values(&mut reader, &rows), values(&mut plain, &rows));
        }
        prop_assert_eq!(counters.get().rows, asked);
    }
}

#[test]
fn rows_of_a_call_are_read_once_in_file_order_and_in_waves() {
    let (file, t) = table(1000, 37);
    let io = Scripted::new(file.clone(), 3, 1024, |_| Fault::None);
    let log = Arc::clone(&io.log);
    let (mut reader, counters) = direct(io, &t, 1 << 20);
    let rows: Vec<u64> = [900, 3, 3, 500, 4, 900, 999, 0, 250].into();
    reader.request(&rows);
    assert_eq!(values(&mut reader, &rows), values(&mut twin(&file, &t), &rows));
    let mut offsets: Vec<(u64, usize)> = log.lock().unwrap().clone();
    offsets.sort_unstable();
    // rows 0, 3 and 4 lie in one block; the others in one or two each, the last at the file's end
    assert_eq!(
        offsets.iter().map(|o| o.0).collect::<Vec<_>>(),
        [0, 22_528 / 512 * 512, 45_037 / 512 * 512, 81_037 / 512 * 512, 89_947 / 512 * 512]
    );
    let c = counters.get();
    assert_eq!((c.rows, c.cached, c.repeated, c.reads, c.late), (9, 0, 2, 5, 0));
    // now the cache has them
    reader.request(&rows);
    assert_eq!(values(&mut reader, &rows), values(&mut twin(&file, &t), &rows));
    assert_eq!((counters.get().cached, counters.get().reads), (9, 5));
    assert_eq!(log.lock().unwrap().len(), 5);
}

#[test]
fn failures_name_the_file_and_the_offset_and_the_next_call_is_well_again() {
    let (file, t) = table(300, 0);
    let mut bad = true;
    let io = Scripted::new(file.clone(), 4, 1024, move |offset| {
        if offset / 512 == 9_000 / 512 && std::mem::take(&mut bad) { Fault::Errno(libc::EIO) } else { Fault::None }
    });
    let (mut reader, _) = direct(io, &t, 4096);
    let rows = [1, 2, 50, 100, 150, 200, 290];
    reader.request(&rows);
    let e = values(&mut reader, &rows).unwrap_err();
    let StorageError::Read { file: name, offset, cause, .. } = &e else { panic!("{e}") };
    assert_eq!((name.as_str(), *offset), ("model.gguf", 8704), "{e}");
    assert!(cause.contains("os error 5"), "{e}");
    assert_eq!(values(&mut reader, &rows), values(&mut twin(&file, &t), &rows));
}

#[test]
fn a_file_that_ends_too_early_is_an_error() {
    let (mut file, t) = table(300, 0);
    file.truncate(26_960);
    let (mut reader, _) = direct(Scripted::new(file, 4, 1024, |_| Fault::None), &t, 0);
    assert!(values(&mut reader, &[298]).is_ok());
    let e = values(&mut reader, &[299]).unwrap_err();
    assert!(matches!(&e, StorageError::Read { cause, .. } if cause.contains("cut short") || cause.contains("ends")), "{e}");
}

#[test]
fn endless_interruptions_end() {
    let (file, t) = table(300, 0);
    let (mut reader, counters) = direct(Scripted::new(file, 4, 1024, |_| Fault::Errno(libc::EAGAIN)), &t, 0);
    let e = values(&mut reader, &[7]).unwrap_err();
    assert!(e.to_string().contains("interrupted or cut short 64 times"), "{e}");
    assert!(counters.get().again >= 64);
}

#[test]
fn a_queue_that_fails_stays_failed() {
    let (file, t) = table(300, 0);
    let mut io = Scripted::new(file, 4, 1024, |_| Fault::None);
    io.wait_fails = true;
    let (mut reader, _) = direct(io, &t, 0);
    for _ in 0..2 {
        assert!(matches!(values(&mut reader, &[7]), Err(StorageError::Read { .. })));
    }
}

#[test]
fn a_scale_that_is_not_finite_is_found_in_the_row_that_holds_it() {
    let (mut file, t) = table(300, 64);
    // the third block of row 123
    let at = 64 + 123 * 90 + 2 * 18;
    file[at..at + 2].copy_from_slice(&0xfc00u16.to_le_bytes());
    let want = StorageError::NotFinite { file: "model.gguf".into(), name: "table".into(), dtype: DType::IQ4_NL, block: 123 * 5 + 2 };
    let mut plain = twin(&file, &t);
    let (mut reader, _) = direct(Scripted::new(file, 4, 1024, |_| Fault::None), &t, 4096);
    for r in [&mut plain as &mut dyn RowReader, &mut reader] {
        assert!(values(r, &[122, 124]).is_ok());
        r.request(&[122, 123]);
        assert_eq!(values(r, &[122, 123]), Err(want.clone()));
        assert!(values(r, &[122, 124]).is_ok());
        assert!(matches!(values(r, &[300]), Err(StorageError::Unavailable { .. })), "beyond the table");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_ring_reads_what_the_file_holds() {
    let (file, t) = table(60_000, 100);
    // a folder of the build: temporary folders are often in memory, which has no reads past the page cache
    let path = std::env::current_exe().unwrap().with_file_name(format!("strata-rows-{}", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    match crate::probe_direct(&path, t.offset) {
        Err(why) => eprintln!("no reads past the page cache here: {why}"),
        Ok(block) => {
            let counters = Arc::<Counters>::default();
            let opened = super::open_direct(&path).unwrap();
            let mut reader = DirectReader::new(opened, t.clone(), block, 1 << 16, Arc::clone(&counters)).unwrap();
            let mut plain = twin(&file, &t);
            // more reads than the queue holds, and the last row, which ends with the file
            let rows: Vec<u64> = (0..4000).map(|i| i * 7919 % 60_000).chain([59_999, 0, 59_999]).collect();
            for _ in 0..3 {
                reader.request(&rows);
                assert_eq!(values(&mut reader, &rows), values(&mut plain, &rows));
            }
            assert!(counters.get().reads > 256 && counters.get().late == 0, "{:?}", counters.get());
            // dropped while reads are under way
            reader.request(&(0..300).map(|i| i * 13).collect::<Vec<_>>());
        }
    }
    std::fs::remove_file(path).unwrap();
}
