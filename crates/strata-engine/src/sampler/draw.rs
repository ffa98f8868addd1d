//! The draw: a 64-bit uniform number for a place in the output, and the token it falls on.

use super::philox4x32_10;

/// The number that decides the token at `position` of a request's `choice`.
pub(super) fn uniform(seed: u64, position: u64, choice: u32) -> u64 {
    let key = [seed as u32, (seed >> 32) as u32];
    let x = philox4x32_10([position as u32, (position >> 32) as u32, choice, 0], key);
    u64::from(x[1]) << 32 | u64::from(x[0])
}

/// The first place whose running sum of masses exceeds `(u * total) >> 64`; never one of mass 0. `total` is the sum of the
/// masses, above 0.
pub(super) fn place(mass: &[u64], total: u64, u: u64) -> usize {
    let r = ((u128::from(u) * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    let found = mass.iter().position(|&w| {
        sum += w;
        sum > r
    });
    // there is one: the masses sum to `total`, which is above r
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_gets_exactly_its_share() {
        // total 8: the top three bits of u are r
        let mass = [0, 3, 0, 1, 4, 0];
        let places: Vec<usize> = (0..8u64).map(|r| place(&mass, 8, r << 61)).collect();
        assert_eq!(places, [1, 1, 1, 3, 4, 4, 4, 4]);
        let last: Vec<usize> = (0..8u64).map(|r| place(&mass, 8, (r << 61) | (u64::MAX >> 3))).collect();
        assert_eq!(last, places);
    }

    #[test]
    fn seed_position_and_choice_go_to_their_words() {
        let x = philox4x32_10([3, 4, 5, 0], [1, 2]);
        assert_eq!(uniform(1 | 2 << 32, 3 | 4 << 32, 5), u64::from(x[0]) + u64::from(x[1]) * (1 << 32));
    }
}
