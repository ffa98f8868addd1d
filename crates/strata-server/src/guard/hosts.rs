//! Who a request is addressed to and which page sent it. A page elsewhere can let its name point at this machine (DNS rebinding);
//! its requests then still carry its name.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use std::net::{IpAddr, SocketAddr};

/// Names and pages that are let in.
pub struct Hosts {
    names: Vec<String>,
    origins: Vec<String>,
    /// Any name will do: whoever calls has a key and listening is not for this machine alone.
    any_name: bool,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    Host,
    Origin,
}

/// What a page of another origin is told; `None` for requests that no page, or the server's own, sent.
pub type CrossOrigin = Option<String>;

impl Hosts {
    /// `names` besides this machine's own; `origins` of other pages, `*` for all.
    pub fn new(listen: SocketAddr, has_keys: bool, names: &[String], origins: &[String]) -> Hosts {
        let any_name = names.iter().any(|n| n == "*") || (has_keys && names.is_empty() && !listen.ip().is_loopback());
        Hosts {
            names: names.iter().map(|n| n.to_ascii_lowercase()).collect(),
            origins: origins.iter().map(|o| o.trim_end_matches('/').to_ascii_lowercase()).collect(),
            any_name,
        }
    }

    /// Checks `Host` and `Origin`.
    ///
    /// # Errors
    /// Which of them is a stranger's.
    pub fn check(&self, headers: &HeaderMap) -> Result<CrossOrigin, Stranger> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next().and_then(|h| h.to_str().ok()), hosts.next()) else {
            return Err(Stranger::Host);
        };
        let host = host.to_ascii_lowercase();
        if !self.any_name && !self.knows(name(&host)) {
            return Err(Stranger::Host);
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(None);
        };
        let origin = origin.to_str().map_err(|_| Stranger::Origin)?;
        let lower = origin.to_ascii_lowercase();
        match lower.split_once("://") {
            Some(("http" | "https", authority)) if authority == host => Ok(None),
            _ if self.origins.iter().any(|o| *o == lower || o == "*") => Ok(Some(origin.to_owned())),
            _ => Err(Stranger::Origin),
        }
    }

    /// An address stands for itself: no name server was asked.
    fn knows(&self, name: &str) -> bool {
        name == "localhost" || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || self.names.iter().any(|n| n == name)
    }
}

/// `Host` without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if (name.ends_with(']') || !name.contains(':')) && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(hosts: &Hosts, host: &str, origin: Option<&str>) -> Result<CrossOrigin, Stranger> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(o) = origin {
            headers.insert(ORIGIN, o.parse().unwrap());
        }
        hosts.check(&headers)
    }

    #[test]
    fn names_and_pages() {
        let lists = (["box.lan".to_owned()], ["https://app.example".to_owned()]);
        let hosts = Hosts::new("127.0.0.1:8080".parse().unwrap(), true, &lists.0, &lists.1);
        for good in ["localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080", "[::1]", "192.168.1.2", "box.lan:80"] {
            assert_eq!(ask(&hosts, good, None), Ok(None), "{good}");
            assert_eq!(ask(&hosts, good, Some(&format!("http://{good}"))), Ok(None), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "localhost@evil.example"] {
            assert_eq!(ask(&hosts, bad, None), Err(Stranger::Host), "{bad}");
        }
        let page = "https://app.example";
        assert_eq!(ask(&hosts, "localhost", Some(page)), Ok(Some(page.into())));
        for bad in ["null", "https://evil.example", "http://app.example", "http://localhost:81", "file://localhost:8080"] {
            assert_eq!(ask(&hosts, "localhost:8080", Some(bad)), Err(Stranger::Origin), "{bad}");
        }
        assert_eq!(hosts.check(&HeaderMap::new()), Err(Stranger::Host));
    }

    #[test]
    fn two_hosts_are_a_stranger() {
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "localhost".parse().unwrap());
        let hosts = Hosts::new("127.0.0.1:8080".parse().unwrap(), false, &[], &[]);
        assert_eq!(hosts.check(&headers), Err(Stranger::Host));
    }

    #[test]
    fn with_a_key_other_machines_may_use_any_name() {
        let at = "0.0.0.0:8080".parse().unwrap();
        assert_eq!(ask(&Hosts::new(at, true, &[], &[]), "any.example", None), Ok(None));
        assert_eq!(ask(&Hosts::new(at, false, &[], &[]), "any.example", None), Err(Stranger::Host));
        assert_eq!(ask(&Hosts::new(at, true, &["box".into()], &[]), "any.example", None), Err(Stranger::Host));
    }
}
