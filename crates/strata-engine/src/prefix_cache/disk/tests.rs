use super::super::Shapes;
use super::*;
use crate::checkpoint::{PAGE, Page};
use crate::speculate::Drafted;
use std::time::Duration;

fn shapes() -> Shapes {
    Shapes { states: 50, block_bytes: 12, mtp_block_bytes: 5, block: 4, open: 8, wide: 3, drafts: true, vocab: 100, capacity: 2000 }
}

fn config() -> Configuration {
    Configuration::new(7, "int8", shapes())
}

/// A checkpoint of `n` tokens with values of no meaning.
fn checkpoint(n: usize, seed: u32) -> Checkpoint {
    let pages = |cells: usize, bytes: usize| {
        let page = |p: usize| vec![(p as u32 + seed) as u8; (cells - p * PAGE).min(PAGE).div_ceil(4) * bytes];
        (0..cells.div_ceil(PAGE)).map(|p| Arc::new(Page(page(p)))).collect()
    };
    Checkpoint {
        tokens: (0..n as u32).map(|i| (i * i + seed) % 100).collect(),
        states: (0..50).map(|i| (i + seed) as f32).collect(),
        pages: pages(n, 12),
        mtp: Some(Drafted {
            rows: n - 2,
            whole: usize::MAX,
            open: vec![2.5; 8],
            carried: (0..6).map(|i| i as f32).collect(),
            next: vec![9],
            pages: pages(n - 2, 5),
        }),
    }
}

fn bytes(c: &Checkpoint) -> Vec<u8> {
    let mut out = Vec::new();
    write(c, &config(), &mut out).unwrap();
    assert_eq!(out.len() as u64, file_bytes(c, &config()));
    out
}

fn read_bytes(b: &[u8], config: &Configuration) -> Result<Checkpoint, FileError> {
    read(&mut &b[..], config, b.len() as u64)
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("strata-disk-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Dir(dir)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_gives_back_what_was_written() {
    for n in [2, 3, 255, 256, 257, 258, 600] {
        let c = checkpoint(n, 3);
        let b = bytes(&c);
        let back = read_bytes(&b, &config()).unwrap();
        assert_eq!(bytes(&back), b);
        assert_eq!((&back.tokens, &back.states), (&c.tokens, &c.states));
        assert_eq!(read_tokens(&mut &b[..], &config(), b.len() as u64).unwrap(), c.tokens);
    }
}

#[test]
fn no_cut_and_no_changed_bit_is_taken() {
    let b = bytes(&checkpoint(300, 5));
    let taken = |b: &[u8]| read_bytes(b, &config()).is_ok();
    assert!(taken(&b));
    for n in 0..b.len() {
        assert!(!taken(&b[..n]), "{n} bytes");
        // a file that is shorter than the directory says
        assert!(read(&mut &b[..n], &config(), b.len() as u64).is_err());
    }
    let mut changed = b.clone();
    for bit in 0..8 * b.len() {
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!taken(&changed), "bit {bit}");
        changed[bit / 8] ^= 1 << (bit % 8);
    }
    changed.push(0);
    assert!(!taken(&changed));
    // what a header says is checked before memory is taken, even if its checksum is right
    for (at, value) in [(4, u64::MAX), (4, 1 << 40), (5, u64::MAX), (7, u64::MAX), (7, 1 << 60), (4, 0)] {
        let mut forged = b.clone();
        forged[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes());
        let sum = XxHash3_128::oneshot(&forged[..72]);
        forged[72..88].copy_from_slice(&sum.to_ne_bytes());
        assert!(matches!(read_bytes(&forged, &config()), Err(FileError::Refused { .. })), "{at} {value}");
    }
}

#[test]
fn files_of_another_model_kind_or_shape_are_refused() {
    let b = bytes(&checkpoint(300, 5));
    let s = shapes();
    let others = [
        Configuration::new(8, "int8", s),
        Configuration::new(7, "q4_0", s),
        Configuration::new(7, "int8", Shapes { block_bytes: 13, ..s }),
        Configuration::new(7, "int8", Shapes { states: 49, ..s }),
        Configuration::new(7, "int8", Shapes { drafts: false, ..s }),
        Configuration::new(7, "int8", Shapes { vocab: 99, ..s }),
    ];
    for other in others {
        assert!(matches!(read_bytes(&b, &other), Err(FileError::Refused { field: "model and configuration", .. })));
    }
    // a longer context changes no state; a shorter one cannot hold it
    assert!(read_bytes(&b, &Configuration::new(7, "int8", Shapes { capacity: 4000, ..s })).is_ok());
    let short = read_bytes(&b, &Configuration::new(7, "int8", Shapes { capacity: 300, ..s }));
    assert!(matches!(short, Err(FileError::Refused { field: "tokens", .. })));
}

#[test]
fn a_directory_survives_a_restart_and_rubbish() {
    let dir = Dir::new("restart");
    let all: Vec<Checkpoint> = (0..4).map(|i| checkpoint(100 + 100 * i, 20 + i as u32)).collect();
    let longer = |c: &Checkpoint| [&c.tokens[..], &[1]].concat();
    for c in &all {
        let disk = Disk::open(&dir.0, 1 << 20, config()).unwrap();
        disk.store(Arc::new(Checkpoint {
            tokens: c.tokens.clone(),
            states: c.states.clone(),
            pages: c.pages.clone(),
            mtp: checkpoint(c.tokens.len(), 1).mtp,
        }));
    }
    let names = dir.names();
    assert_eq!(names.len(), 4);
    // one cut, one with a changed byte, one of another model; parts of files; files that are not ours
    let path = |i: usize| dir.0.join(&names[i]);
    let b = fs::read(path(0)).unwrap();
    fs::write(path(0), &b[..b.len() - 1]).unwrap();
    let mut b = fs::read(path(1)).unwrap();
    let at = b.len() - 30;
    b[at] ^= 4;
    fs::write(path(1), &b).unwrap();
    fs::write(dir.0.join(format!("{}.77.new", names[2].strip_suffix(".state").unwrap())), "half").unwrap();
    fs::write(dir.0.join("strata-0123456789abcdef-0123456789abcdef.state"), "other").unwrap();
    fs::write(dir.0.join("strata-notes.state"), "mine").unwrap();
    let disk = Disk::open(&dir.0, 1 << 20, config()).unwrap();
    let found: Vec<bool> = all
        .iter()
        .map(|c| disk.load(&longer(c)).is_some_and(|l| bytes(&l).len() as u64 == file_bytes(c, &config()) && l.states == c.states))
        .collect();
    assert_eq!(found.iter().filter(|f| **f).count(), 2, "two are whole");
    let mut left = dir.names();
    left.retain(|n| n != "strata-notes.state");
    assert_eq!(left, names[2..], "the others are gone");
    assert_eq!(disk.stats().refused, 4);
    assert!(disk.load(&all[3].tokens).is_none_or(|c| c.tokens.len() < 400), "one token must be left to read");
    // another configuration takes the directory over
    drop(disk);
    let disk = Disk::open(&dir.0, 1 << 20, Configuration::new(9, "int8", shapes())).unwrap();
    assert_eq!((disk.stats().files, dir.names()), (0, vec!["strata-notes.state".to_string()]));
}

#[test]
fn the_file_used_longest_ago_goes_first() {
    let dir = Dir::new("budget");
    let of = |i: u32| checkpoint(300, 30 + i);
    let one = file_bytes(&of(0), &config());
    let longer = |i: u32| [&of(i).tokens[..], &[1]].concat();
    let store = |i: u32| Disk::open(&dir.0, 3 * one, config()).unwrap().store(Arc::new(of(i)));
    for i in 0..3 {
        store(i);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Disk::open(&dir.0, 3 * one, config()).unwrap().load(&longer(0)).is_some());
    store(3);
    let disk = Disk::open(&dir.0, 3 * one, config()).unwrap();
    let there: Vec<usize> = (0..4).map(|i| disk.longest(&longer(i))).collect();
    assert_eq!((there, disk.stats().bytes), (vec![300, 0, 300, 300], 3 * one));
    // a smaller budget holds at once; a file larger than all of it is not written
    drop(disk);
    let disk = Disk::open(&dir.0, one - 1, config()).unwrap();
    assert_eq!(disk.stats().files, 0);
    disk.store(Arc::new(of(9)));
    drop(disk);
    assert_eq!(dir.names().len(), 0);
}
