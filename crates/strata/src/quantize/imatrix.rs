//! Importance matrices as llama.cpp's tools write them: for each matrix the mean square of every input.
//!
//! GGUF files hold two F32 tensors a matrix, `NAME.in_sum2` (sums of squares, a row for each expert) and `NAME.counts`. The older
//! format is a plain list: number of entries; for each the length of the name, the name, the number of calls, the number of values
//! and the values, which are means times calls; then, optionally, the number of chunks and the length and name of the data set. Its
//! numbers are little-endian of 32 bits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use strata_gguf::{Gguf, GgufError, StringArray, TensorInfo};
use strata_quant::DType;
use thiserror::Error;

/// Why an importance matrix cannot be used.
#[derive(Debug, Error)]
pub enum ImatrixError {
    #[error("{}: cannot read: {error}", file.display())]
    Read { file: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{}: entry {entry}: {field}: expected {expected}, found {found}", file.display())]
    Field { file: PathBuf, entry: usize, field: &'static str, expected: &'static str, found: String },
    #[error("{}: tensor '{tensor}': expected {expected}, found {found}", file.display())]
    Tensor { file: PathBuf, tensor: String, expected: String, found: String },
    #[error("{}: no entries", file.display())]
    Empty { file: PathBuf },
}

/// Importance by the names of matrices.
pub struct Imatrix {
    file: PathBuf,
    /// The file's name, without its folder.
    pub name: String,
    /// What text it was made from.
    pub dataset: Option<String>,
    /// Chunks of that text.
    pub chunks: Option<u32>,
    entries: BTreeMap<String, Vec<f32>>,
}

impl Imatrix {
    /// Reads a file of either format.
    ///
    /// # Errors
    /// It cannot be read, is malformed, or has a value that is negative or not finite.
    pub fn load(path: &Path) -> Result<Imatrix, ImatrixError> {
        let file = path.to_owned();
        let mut start = [0; 4];
        let read = fs::File::open(path).and_then(|mut f| std::io::Read::read(&mut f, &mut start));
        let read = read.map_err(|error| ImatrixError::Read { file: file.clone(), error })?;
        let imatrix = if read == 4 && start == *b"GGUF" {
            Imatrix::of_gguf(&Gguf::open(path)?)?
        } else {
            Imatrix::of_list(&file, &fs::read(path).map_err(|error| ImatrixError::Read { file: file.clone(), error })?)?
        };
        if imatrix.entries.is_empty() {
            return Err(ImatrixError::Empty { file });
        }
        Ok(imatrix)
    }

    fn new(file: &Path) -> Imatrix {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Imatrix { file: file.to_owned(), name, dataset: None, chunks: None, entries: BTreeMap::new() }
    }

    fn of_gguf(gguf: &Gguf) -> Result<Imatrix, ImatrixError> {
        let mut imatrix = Imatrix::new(gguf.path());
        let datasets = gguf.metadata().get_opt::<&StringArray>("imatrix.datasets")?;
        imatrix.dataset = datasets.and_then(|d| d.get(0)).map(str::to_owned);
        imatrix.chunks = gguf.metadata().get_opt::<u32>("imatrix.chunk_count")?;
        let bad = |tensor: &str, expected: String, found: String| ImatrixError::Tensor {
            file: gguf.path().to_owned(),
            tensor: tensor.to_owned(),
            expected,
            found,
        };
        let floats = |t: &TensorInfo| {
            if t.dtype != DType::F32 {
                return Err(bad(&t.name, "F32".into(), t.dtype.name().into()));
            }
            Ok(gguf.data(t).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<f32>>())
        };
        for t in gguf.tensors() {
            let Some(name) = t.name.strip_suffix(".in_sum2") else { continue };
            let counts_name = format!("{name}.counts");
            let counts =
                gguf.tensor(&counts_name).ok_or_else(|| bad(&counts_name, "the counts of in_sum2".into(), "no such tensor".into()))?;
            let (mut values, counts) = (floats(t)?, floats(counts)?);
            let cols = t.cols() as usize;
            if cols == 0 || counts.len() * cols != values.len() {
                return Err(bad(&counts_name, format!("a count for each of {} rows", t.rows()), counts.len().to_string()));
            }
            for (values, count) in values.chunks_exact_mut(cols).zip(counts) {
                // an expert that no token met: all its inputs are alike
                values.iter_mut().for_each(|v| *v = if count > 0.0 { *v / count } else { 1.0 });
            }
            if let Some(i) = unusable(&values) {
                return Err(bad(&t.name, "finite sums that are not negative".into(), format!("{} as value {i}", values[i])));
            }
            imatrix.entries.insert(name.to_owned(), values);
        }
        Ok(imatrix)
    }

    fn of_list(file: &Path, bytes: &[u8]) -> Result<Imatrix, ImatrixError> {
        let mut imatrix = Imatrix::new(file);
        let mut list = List { file, rest: bytes, entry: 0 };
        for entry in 0..list.count("number of entries", 1)? {
            list.entry = entry + 1;
            let len = list.count("length of the name", 1)?;
            let name = String::from_utf8_lossy(list.take("name", len)?).into_owned();
            let calls = list.number("number of calls")?.max(1) as f32;
            let n = list.count("number of values", 1)?;
            let values = list.take("values", n.saturating_mul(4))?;
            let values: Vec<f32> = values.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b) / calls).collect();
            if let Some(i) = unusable(&values) {
                return Err(list.bad("values", "finite numbers that are not negative", format!("{} as value {i}", values[i])));
            }
            imatrix.entries.insert(name, values);
        }
        if !list.rest.is_empty() {
            imatrix.chunks = Some(list.count("number of chunks", 0)? as u32);
            if !list.rest.is_empty() {
                let len = list.count("length of the data set's name", 0)?;
                imatrix.dataset = Some(String::from_utf8_lossy(list.take("data set's name", len)?).into_owned()).filter(|d| !d.is_empty());
            }
        }
        Ok(imatrix)
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Checks the sizes of the entries of tensors.
    ///
    /// # Errors
    /// An entry has neither a value for each column nor one for each column of each matrix.
    pub fn check<'a>(&self, tensors: impl Iterator<Item = &'a TensorInfo>) -> Result<(), ImatrixError> {
        for t in tensors {
            let Some(values) = self.entries.get(&t.name) else { continue };
            let (cols, n) = (t.cols(), values.len() as u64);
            if n != cols && Some(n) != cols.checked_mul(matrices(t)) {
                let expected = format!("{cols} values, or that for each of {} matrices", matrices(t));
                return Err(ImatrixError::Tensor { file: self.file.clone(), tensor: t.name.clone(), expected, found: n.to_string() });
            }
        }
        Ok(())
    }

    /// The importance of the inputs of a row of a tensor that was checked.
    pub fn row(&self, t: &TensorInfo, row: u64) -> Option<&[f32]> {
        let values = self.entries.get(&t.name)?;
        let cols = t.cols() as usize;
        let matrix = if values.len() == cols { 0 } else { (row / t.dims.get(1)?) as usize };
        values.get(matrix * cols..(matrix + 1) * cols)
    }
}

/// Matrices a tensor has: one for each expert.
fn matrices(t: &TensorInfo) -> u64 {
    t.dims.iter().skip(2).product()
}

fn unusable(values: &[f32]) -> Option<usize> {
    values.iter().position(|v| !(0.0..f32::INFINITY).contains(v))
}

/// The older format, from where it is read on.
struct List<'a> {
    file: &'a Path,
    rest: &'a [u8],
    entry: usize,
}

impl<'a> List<'a> {
    fn bad(&self, field: &'static str, expected: &'static str, found: String) -> ImatrixError {
        ImatrixError::Field { file: self.file.to_owned(), entry: self.entry, field, expected, found }
    }

    fn take(&mut self, field: &'static str, n: usize) -> Result<&'a [u8], ImatrixError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or_else(|| self.bad(field, "more bytes", format!("{} of {n} bytes before the end of the file", self.rest.len())))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, field: &'static str) -> Result<i32, ImatrixError> {
        let bytes = self.take(field, 4)?;
        Ok(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn count(&mut self, field: &'static str, least: i32) -> Result<usize, ImatrixError> {
        let n = self.number(field)?;
        usize::try_from(n)
            .ok()
            .filter(|_| n >= least)
            .ok_or_else(|| self.bad(field, if least == 0 { "a number that is not negative" } else { "a positive number" }, n.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::file_of;
    use super::*;
    use strata_gguf::{GgufWriter, Metadata};
    use strata_quant::testing::SplitMix64;

    /// A list of two entries: a matrix of 4 columns, and one of 2 columns and 3 experts.
    fn list() -> Vec<u8> {
        let mut out = 2i32.to_le_bytes().to_vec();
        for (name, calls, values) in [("a.weight", 2i32, vec![2.0f32, 4.0, 0.0, 8.0]), ("e.weight", 1, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]
        {
            out.extend((name.len() as i32).to_le_bytes());
            out.extend(name.bytes());
            out.extend(calls.to_le_bytes());
            out.extend((values.len() as i32).to_le_bytes());
            out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        }
        out.extend(7i32.to_le_bytes());
        out.extend(5i32.to_le_bytes());
        out.extend(b"prose");
        out
    }

    fn gguf(counts: &[f32], sum: f32) -> Vec<u8> {
        let mut w = GgufWriter::new(Metadata::default()).unwrap();
        w.tensor("e.weight.in_sum2", DType::F32, &[2, 2]).unwrap();
        w.tensor("e.weight.counts", DType::F32, &[1, counts.len() as u64]).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        [3.0, sum, 5.0, 7.0].iter().chain(counts).for_each(|v: &f32| out.write(&v.to_le_bytes()).unwrap());
        out.finish().unwrap()
    }

    fn load_list(bytes: &[u8]) -> Result<Imatrix, ImatrixError> {
        Imatrix::of_list(Path::new("x.dat"), bytes)
    }

    #[test]
    fn lists_are_means_by_row() {
        let m = load_list(&list()).unwrap();
        assert_eq!((m.len(), m.chunks, m.dataset.as_deref()), (2, Some(7), Some("prose")));
        let files = [file_of("a.weight", &[4, 9]), file_of("e.weight", &[2, 5, 3]), file_of("b.weight", &[4, 9])];
        let [a, e, b] = files.each_ref().map(|f| f.tensors().next().unwrap());
        assert_eq!(m.row(a, 8), Some(&[1.0, 2.0, 0.0, 4.0][..]));
        assert_eq!((m.row(e, 4), m.row(e, 5), m.row(e, 14)), (Some(&[1.0, 2.0][..]), Some(&[3.0, 4.0][..]), Some(&[5.0, 6.0][..])));
        assert_eq!(m.row(b, 0), None);
        assert!(m.check([a, e].into_iter()).is_ok());
        let wrong = m.check(file_of("e.weight", &[2, 5, 4]).tensors()).unwrap_err().to_string();
        assert!(wrong.contains("e.weight") && wrong.contains("found 6"), "{wrong}");
        // the end may be missing
        let end = list().len() - 13;
        assert_eq!(load_list(&list()[..end]).unwrap().chunks, None);
    }

    #[test]
    fn gguf_files_are_sums_over_counts() {
        let m = Imatrix::of_gguf(&Gguf::from_bytes(gguf(&[2.0, 0.0], 4.0)).unwrap()).unwrap();
        let file = file_of("e.weight", &[2, 8, 2]);
        let e = file.tensor("e.weight").unwrap();
        assert_eq!((m.row(e, 7), m.row(e, 8)), (Some(&[1.5, 2.0][..]), Some(&[1.0, 1.0][..])));
        for bad in [gguf(&[2.0, 1.0], f32::NAN), gguf(&[2.0, 1.0], -1.0), gguf(&[2.0], 1.0), gguf(&[2.0; 3], 1.0)] {
            let error = Imatrix::of_gguf(&Gguf::from_bytes(bad).unwrap()).err().expect("an error");
            assert!(error.to_string().contains("e.weight."), "{error}");
        }
    }

    #[test]
    fn malformed_files_are_errors() {
        let good = list();
        let ends = [good.len(), good.len() - 13, good.len() - 9];
        for cut in 0..good.len() {
            assert_eq!(load_list(&good[..cut]).is_ok(), ends.contains(&cut), "cut at {cut}");
        }
        // lengths, counts and values changed at random: an error or some matrix, never a panic or a large allocation
        let mut rng = SplitMix64::new(1);
        let mut errors = 0;
        for _ in 0..20_000 {
            let mut bad = good.clone();
            for _ in 0..1 + rng.next_u64() % 3 {
                let at = rng.next_u64() as usize % bad.len();
                bad[at] = rng.next_u64() as u8;
            }
            errors += usize::from(load_list(&bad).is_err());
        }
        assert!(errors > 5_000, "{errors}");
        let mut bad = good;
        bad[..4].copy_from_slice(&(-1i32).to_le_bytes());
        assert!(load_list(&bad).err().expect("an error").to_string().contains("number of entries"));
    }

    #[test]
    fn files_are_told_apart() {
        let dir = std::env::temp_dir().join(format!("strata-imatrix-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("m");
        for (bytes, entries) in [(list(), 2), (gguf(&[1.0, 1.0], 1.0), 1)] {
            fs::write(&path, bytes).unwrap();
            let m = Imatrix::load(&path).unwrap();
            assert_eq!((m.len(), m.name.as_str()), (entries, "m"));
        }
        fs::write(&path, b"GGUF").unwrap();
        assert!(matches!(Imatrix::load(&path), Err(ImatrixError::Gguf(_))));
        fs::write(&path, b"").unwrap();
        assert!(matches!(Imatrix::load(&path), Err(ImatrixError::Field { .. })));
        fs::remove_dir_all(&dir).unwrap();
        assert!(matches!(Imatrix::load(&path), Err(ImatrixError::Read { .. })));
    }
}
