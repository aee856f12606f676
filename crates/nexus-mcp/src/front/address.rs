//! Addresses: which networks are trusted, and who really is at the other end behind a proxy.

use std::net::IpAddr;

use thiserror::Error;

/// A network, `192.168.1.0/24` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is neither an address nor a network such as 10.0.0.0/8")]
pub struct BadNetwork(String);

impl Network {
    pub fn parse(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let widest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(widest);
        if prefix > widest { Err(bad()) } else { Ok(Self { base, prefix }) }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// The address a request comes from: the peer's, unless the peer is a trusted proxy; then the last
/// address in `X-Forwarded-For` that is not one itself. Anything a client wrote there stands further left.
pub fn caller(peer: IpAddr, forwarded_for: Option<&str>, proxies: &[Network]) -> IpAddr {
    let trusted = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    if !trusted(peer) {
        return peer;
    }
    let hops = forwarded_for.unwrap_or_default().rsplit(',').map(|hop| hop.trim().parse::<IpAddr>());
    for hop in hops {
        match hop {
            Ok(address) if trusted(address) => {}
            Ok(address) => return address,
            Err(_) => break,
        }
    }
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_what_they_say() {
        check("192.168.1.0/24", "192.168.1.77", true);
        check("192.168.1.0/24", "192.168.2.77", false);
        check("10.0.0.1", "10.0.0.1", true);
        check("10.0.0.1", "10.0.0.2", false);
        check("0.0.0.0/0", "8.8.8.8", true);
        check("fd00::/8", "fd12::1", true);
        check("10.0.0.0/8", "::ffff:10.1.2.3", true);

        #[track_caller]
        fn check(network: &str, address: &str, expected: bool) {
            assert_eq!(
                Network::parse(network).unwrap().contains(address.parse().unwrap()),
                expected,
                "{network} {address}"
            );
        }
    }

    #[test]
    fn bad_networks_are_refused() {
        for bad in ["", "host", "10.0.0.0/33", "::/129", "10.0.0.0/x"] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_may_name_another_caller() {
        check("192.0.2.9", Some("1.2.3.4"), "192.0.2.9");
        check("10.0.0.1", Some("1.2.3.4"), "1.2.3.4");
        check("10.0.0.1", Some("6.6.6.6, 1.2.3.4, 10.0.0.2"), "1.2.3.4");
        check("10.0.0.1", Some("nonsense"), "10.0.0.1");
        check("10.0.0.1", None, "10.0.0.1");

        #[track_caller]
        fn check(peer: &str, header: Option<&str>, expected: &str) {
            let proxies = [Network::parse("10.0.0.0/8").unwrap()];
            assert_eq!(caller(peer.parse().unwrap(), header, &proxies), expected.parse::<IpAddr>().unwrap());
        }
    }
}
