//! Largest values, several lanes at a time: a value does not depend on the order in which it is looked for.

/// Values that are compared side by side.
const LANES: usize = 16;

/// [`strata_ops::qsa::digits::amax`] of whole lanes.
#[inline(always)]
pub(super) fn amax<const N: usize>(x: &[f32; N]) -> f32 {
    const { assert!(N.is_multiple_of(LANES)) };
    let mut lanes = [0.0f32; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for (m, x) in lanes.iter_mut().zip(x) {
            *m = if x.abs() > *m { x.abs() } else { *m };
        }
    }
    lanes.into_iter().fold(0.0, |m, x| if x > m { x } else { m })
}

/// The first of the largest values, none below `-f32::MAX`; what is not a number is passed over.
#[inline(always)]
pub(super) fn largest(x: &[f32]) -> f32 {
    let greater = |m: f32, x: f32| if x > m { x } else { m };
    let (wide, rest) = x.as_chunks::<LANES>();
    let mut lanes = [-f32::MAX; LANES];
    for x in wide {
        for (m, x) in lanes.iter_mut().zip(x) {
            *m = greater(*m, *x);
        }
    }
    let m = lanes.into_iter().chain(rest.iter().copied()).fold(-f32::MAX, greater);
    // the two zeros are equal, and which of them came first is not known here
    if m == 0.0 { x.iter().copied().fold(-f32::MAX, greater) } else { m }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::rng::Rng;
    use strata_ops::qsa::digits;

    #[test]
    fn the_same_as_one_by_one() {
        let mut rng = Rng::new(1);
        let odd = [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::MAX, f32::from_bits(1)];
        for case in 0..20_000 {
            let pick = |rng: &mut Rng| match rng.below(3) {
                // nothing above the zeros, which come in any lane first
                _ if case % 5 == 0 => [0.0, -0.0, -1.0][rng.below(3)],
                0 => odd[rng.below(odd.len())],
                _ => rng.uniform() * 2.0 - 1.0,
            };
            let x: [f32; 64] = std::array::from_fn(|_| pick(&mut rng));
            assert_eq!(amax(&x).to_bits(), digits::amax(&x).to_bits(), "{x:?}");
            let x = &x[..rng.below(65)];
            let expected = x.iter().fold(-f32::MAX, |m, s| if *s > m { *s } else { m });
            assert_eq!(largest(x).to_bits(), expected.to_bits(), "{x:?}");
        }
    }
}
