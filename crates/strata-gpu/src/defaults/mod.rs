//! Which kernel runs when: base values, defaults of an architecture, what was measured on a device, and explicit values, each
//! over the one before. Every default is exact: no answer depends on any of them.

pub mod check;
mod table;
mod tables;

pub use table::{Entry, TABLE};
pub use tables::Tables;
pub(crate) use tables::entry_name;

use crate::driver::DeviceInfo;
use crate::tune;
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// Set to `off`, it leaves the base values alone: no defaults of architectures, nothing measured.
pub const OPT_OUT: &str = "STRATA_ARCH_DEFAULTS";

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// What a device gets that nothing is known about.
    Base,
    /// The architecture's default.
    Arch,
    /// Measured on this device by `strata kernels tune`.
    Tuned,
    /// Explicit.
    User,
}

impl Origin {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Base => "base",
            Origin::Arch => "arch",
            Origin::Tuned => "tuned",
            Origin::User => "user",
        }
    }
}

/// A switch in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub name: String,
    pub value: String,
    pub origin: Origin,
}

/// The dispatch tables of a device and where each value comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    tables: Tables,
    /// Values by origin, then name, as they were set.
    layers: BTreeMap<Origin, BTreeMap<String, String>>,
    notes: Vec<String>,
}

impl Dispatch {
    /// Base values.
    pub fn base() -> Dispatch {
        Dispatch::default()
    }

    /// Base values and the built-in defaults of an architecture, if it has some and the environment does not opt out.
    pub fn for_arch(arch: &str) -> Dispatch {
        Dispatch::with_environment(arch, std::env::var_os(OPT_OUT).as_deref())
    }

    /// The same for a value of [`OPT_OUT`].
    pub(crate) fn with_environment(arch: &str, opt_out: Option<&OsStr>) -> Dispatch {
        let mut d = Dispatch::base();
        if !is_off(opt_out) {
            d.add_arch(arch);
        }
        d
    }

    /// The same with what was measured on this device. A file of measurements that cannot be used is ignored, with a note.
    pub fn for_device(info: &DeviceInfo) -> Dispatch {
        let mut d = Dispatch::for_arch(&info.arch);
        if !is_off(std::env::var_os(OPT_OUT).as_deref()) {
            d.add_tuned(tune::load(info));
        }
        d
    }

    /// Adds the defaults of an architecture; explicit values stay.
    pub fn add_arch(&mut self, arch: &str) {
        self.add_entries(TABLE.iter(), arch);
    }

    pub(crate) fn add_entries<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>, arch: &str) {
        let own = entries.filter(|e| table::base_name(arch).is_some_and(|a| e.archs.contains(&a)));
        let lines = own.map(|e| (e.switch.to_owned(), e.value.to_owned()));
        self.layers.entry(Origin::Arch).or_default().extend(lines);
        self.rebuild();
    }

    pub(crate) fn add_tuned(&mut self, found: Result<Vec<(String, String)>, String>) {
        match found {
            Ok(lines) => self.layers.entry(Origin::Tuned).or_default().extend(lines),
            Err(note) => self.notes.push(note),
        }
        self.rebuild();
    }

    /// Sets an explicit value, which no default replaces whichever is first. Whether there is a switch of this name that takes it.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        if !Tables::default().set(name, value) {
            return false;
        }
        self.layers.entry(Origin::User).or_default().insert(name.to_owned(), value.to_owned());
        self.rebuild();
        true
    }

    fn rebuild(&mut self) {
        self.tables = Tables::default();
        for (name, value) in self.layers.values().flatten() {
            self.tables.set(name, value);
        }
    }

    /// The tables in force.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What is to be told of files that could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Every switch in force.
    pub fn values(&self) -> Vec<Value> {
        let origin = |name: &str| {
            // `score.per_group` stands for the four of its reaches
            let sets = |key: &String| key == name || name.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('_'));
            self.layers.iter().rev().find(|(_, lines)| lines.keys().any(sets)).map_or(Origin::Base, |(o, _)| *o)
        };
        self.tables.values().into_iter().map(|(name, value)| Value { origin: origin(&name), name, value }).collect()
    }
}

/// Whether a value of [`OPT_OUT`] opts out.
fn is_off(value: Option<&OsStr>) -> bool {
    value.is_some_and(|v| v.eq_ignore_ascii_case("off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_values_stay_whichever_is_first() {
        let mut before = Dispatch::base();
        assert!(before.set("topk.reg_min", "100") && before.set("score.per_group", "32"));
        before.add_arch("gfx1201");
        let mut after = Dispatch::base();
        after.add_arch("gfx1201");
        assert!(after.set("topk.reg_min", "100") && after.set("score.per_group", "32"));
        assert_eq!(before, after);
        assert_eq!((before.tables().topk.reg_min, before.tables().topk.reg_max), (100, 66));
        before.add_tuned(Ok(vec![("topk.reg_min".into(), "7".into()), ("topk.reg_max".into(), "17".into())]));
        before.add_arch("gfx1201");
        assert_eq!((before.tables().topk.reg_min, before.tables().topk.reg_max), (100, 17));
        let origin = |name: &str| before.values().into_iter().find(|v| v.name == name).unwrap().origin;
        assert_eq!((origin("topk.reg_min"), origin("topk.reg_max")), (Origin::User, Origin::Tuned));
        assert_eq!((origin("score.per_group_max"), origin("topk.by_active")), (Origin::User, Origin::Base));
    }

    #[test]
    fn what_is_no_switch_changes_nothing() {
        let mut d = Dispatch::base();
        for (name, value) in [("", ""), ("topk", "1"), ("topk.", "1"), ("topk.reg", "1"), ("topk.reg_min", "-1"), ("score.rows", "256")] {
            assert!(!d.set(name, value), "{name} = {value}");
        }
        assert_eq!(d, Dispatch::base());
    }

    #[test]
    fn off_opts_out() {
        let off = |v: &str| is_off(Some(v.as_ref()));
        assert_eq!((off("off"), off("OFF"), off(""), off("on"), is_off(None)), (true, true, false, false, false));
    }
}
