//! A recipe: shape, types, seed.

use crate::error::SynthError;
use crate::shape::Shape;
use strata_quant::DType;

/// Everything that decides the bytes of a synthetic model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub shape: Shape,
    /// Gate and up matrices of the experts.
    pub experts: DType,
    /// Down matrices of the experts.
    pub down: DType,
    /// Attention, gated DeltaNet, hyper-connection and shared-expert matrices.
    pub dense: DType,
    /// Token embedding and head.
    pub embedding: DType,
    /// The n-gram table.
    pub table: DType,
    pub seed: u64,
}

/// The fields of a recipe that are types.
const TYPE_FIELDS: [&str; 4] = ["down", "dense", "emb", "table"];

impl Recipe {
    /// A model whose experts are of the named type, with the other types at their defaults: down matrices of the same type
    /// if their rows allow it, else of the [`fallback`]; dense and embedding Q6_K; n-gram table IQ4_NL.
    ///
    /// # Errors
    /// A type that this build does not know.
    pub fn new(shape: Shape, experts: &str) -> Result<Recipe, SynthError> {
        let experts = dtype("type", experts)?;
        Ok(Recipe { shape, experts, down: experts, dense: DType::Q6_K, embedding: DType::Q6_K, table: DType::IQ4_NL, seed: 1 })
    }

    /// Reads `NAME:TYPE[,FIELD=VALUE...]`: a preset or `config.json`, the experts' type, and fields of [`Recipe::set`].
    ///
    /// # Errors
    /// Names what is malformed, unknown or out of range.
    pub fn parse(text: &str) -> Result<Recipe, SynthError> {
        let form = || SynthError::Form(text.to_owned());
        let mut parts = text.split(',');
        let (name, experts) = parts.next().and_then(|p| p.rsplit_once(':')).ok_or_else(form)?;
        let mut recipe = Recipe::new(Shape::named(name)?, experts)?;
        for part in parts {
            let (field, value) = part.split_once('=').ok_or_else(form)?;
            recipe.set(field.trim(), value.trim())?;
        }
        recipe.shape.check()?;
        Ok(recipe)
    }

    /// Sets a size, a type (`down`, `dense`, `emb`, `table`) or the `seed` by name.
    ///
    /// # Errors
    /// An unknown field, or a value that it cannot have.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), SynthError> {
        let number = || {
            let bad = |_| SynthError::Value { field: field.into(), expected: "a whole number".into(), found: format!("'{value}'") };
            value.parse::<u64>().map_err(bad)
        };
        match field {
            "down" => self.down = dtype(field, value)?,
            "dense" => self.dense = dtype(field, value)?,
            "emb" => self.embedding = dtype(field, value)?,
            "table" => self.table = dtype(field, value)?,
            "seed" => self.seed = number()?,
            size if Shape::fields().any(|f| f == size) => self.shape.set(size, number()?)?,
            _ => {
                let all: Vec<&str> = Shape::fields().chain(TYPE_FIELDS).chain(["seed"]).collect();
                return Err(SynthError::Field { expected: all.join(", "), found: field.into() });
            }
        }
        Ok(())
    }
}

/// A type by its name.
fn dtype(field: &str, name: &str) -> Result<DType, SynthError> {
    let known = || DType::all().map(DType::name).collect::<Vec<_>>().join(", ");
    DType::from_name(name).ok_or_else(|| SynthError::Type { field: field.into(), expected: known(), found: name.into() })
}

/// The type of a matrix of `dtype` whose rows have `cols` values: itself where rows are whole blocks, else the 32-wide type
/// that quantisers of this field take in its place, else BF16.
pub fn fallback(dtype: DType, cols: u64) -> DType {
    let fits = |d: &DType| cols.is_multiple_of(d.block_len() as u64);
    let narrow = match dtype.name() {
        "Q4_K" => ["Q5_0", "Q8_0"],
        "Q5_K" => ["Q5_1", "Q8_0"],
        "Q6_K" => ["Q8_0", "Q8_0"],
        _ => ["IQ4_NL", "Q8_0"],
    };
    let narrow = narrow.into_iter().filter_map(DType::from_name);
    std::iter::once(dtype).chain(narrow).find(fits).unwrap_or(DType::BF16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_read() {
        let r = Recipe::parse("qwen3.8-flash-next:iq3_s,layers=4,experts=16,down=Q8_0,emb=Q4_K,seed=9").unwrap();
        assert_eq!(
            (r.shape.layers, r.shape.experts, r.experts, r.down, r.embedding, r.seed),
            (4, 16, DType::IQ3_S, DType::Q8_0, DType::Q4_K, 9)
        );
        for (text, word) in [
            ("refmodel", "NAME:TYPE"),
            ("refmodel:Q4_K,layers", "NAME:TYPE"),
            ("refmodel:Q9_K", "'Q9_K'"),
            ("other:Q4_K", "'other'"),
            ("refmodel:Q4_K,depth=1", "'depth'"),
            ("refmodel:Q4_K,layers=many", "layers: expected a whole number, found 'many'"),
            ("refmodel:Q4_K,used=99", "used: expected at most the 24 experts, found 99"),
            ("refmodel:Q4_K,down=x", "down: expected a tensor type"),
        ] {
            let e = Recipe::parse(text).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
    }

    #[test]
    fn narrow_rows_get_narrow_types() {
        assert_eq!(fallback(DType::IQ3_S, 640), DType::IQ4_NL);
        assert_eq!(fallback(DType::IQ3_S, 2560), DType::IQ3_S);
        assert_eq!(fallback(DType::Q6_K, 320), DType::Q8_0);
        assert_eq!(fallback(DType::Q8_0, 16), DType::BF16);
    }
}
