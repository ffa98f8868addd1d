//! A slice that several threads write at once, each its own range.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice shared by the tasks of a job.
pub(crate) struct Disjoint<'a, T> {
    at: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out ranges that its users promise not to overlap, so sharing it is sharing those ranges out.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { at: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// One range of the slice.
    ///
    /// # Panics
    /// If the range is outside the slice.
    ///
    /// # Safety
    /// No other range in use at the same time overlaps it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, r: Range<usize>) -> &mut [T] {
        assert!(r.start <= r.end && r.end <= self.len);
        // SAFETY: inside the slice, which is borrowed for 'a; the caller promises that no range overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(r.start), r.end - r.start) }
    }
}
