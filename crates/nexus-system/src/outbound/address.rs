//! Which addresses may be called: what is public, and this machine where it is named; more only where the operator says so.
//!
//! A name is looked up once, every address it leads to is checked, and the connection goes to a checked address: a name
//! that leads elsewhere a moment later gains nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

/// The private addresses that may be called, beyond this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reach {
    all: bool,
    hosts: Vec<String>,
    networks: Vec<Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// Who named the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// Whoever configured the hub.
    ByOperator,
    /// A server, in a redirect: it may not lead to this machine.
    ByServer,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{address} is {what}, which is not allowed unless it is listed (`allow_private`)")]
pub struct Refused {
    address: IpAddr,
    what: &'static str,
}

impl Reach {
    /// All private networks, or some: host names, addresses, or networks as `10.0.0.0/8`.
    pub fn new<S: AsRef<str>>(all: bool, some: impl IntoIterator<Item = S>) -> Self {
        let mut reach = Self { all, ..Self::default() };
        for entry in some {
            match network(entry.as_ref()) {
                Some(network) => reach.networks.push(network),
                None => reach.hosts.push(plain(entry.as_ref())),
            }
        }
        reach
    }

    /// Whether this address of that host may be called.
    pub fn check(&self, host: &str, address: IpAddr, named: Named) -> Result<(), Refused> {
        let address = unmapped(address);
        let host = plain(host);
        let listed = self.networks.iter().any(|network| network.holds(address));
        let what = match kind(address) {
            Kind::Public => return Ok(()),
            // Only by its very address: whoever can read it is the machine, to the cloud it runs in.
            Kind::Metadata if self.networks.iter().any(|network| network.is(address)) => return Ok(()),
            Kind::Metadata => "the metadata service of a cloud",
            Kind::Loopback if named == Named::ByOperator && means_this_machine(&host) => return Ok(()),
            // The system takes it for this machine; nobody who means well leads there.
            Kind::Loopback if named == Named::ByServer && address.is_unspecified() => "this machine",
            _ if listed || self.hosts.contains(&host) => return Ok(()),
            Kind::Loopback if named == Named::ByServer => "this machine",
            Kind::Loopback => "this machine under another name",
            Kind::Private(_) if self.all => return Ok(()),
            Kind::Private(what) => what,
        };
        Err(Refused { address, what })
    }
}

/// `localhost`, or an address: [`Reach::check`] has looked at which.
fn means_this_machine(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
}

/// As hosts are compared: without brackets, final dot and capitals.
fn plain(host: &str) -> String {
    host.trim().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

fn network(entry: &str) -> Option<Network> {
    let (address, bits) = match entry.trim().split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (entry.trim(), None),
    };
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(Network { address, bits })
}

impl Network {
    fn holds(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                net.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                net.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// This very address and no network around it.
    fn is(self, address: IpAddr) -> bool {
        self.address == address && self.bits == if address.is_ipv4() { 32 } else { 128 }
    }
}

enum Kind {
    Public,
    Loopback,
    Metadata,
    Private(&'static str),
}

/// AWS, Azure, Google and most others; ECS; Alibaba; Azure's wire server; Oracle.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// AWS, ECS, Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

/// IANA's registry of special addresses.
fn kind_v4(address: Ipv4Addr) -> Kind {
    if METADATA_V4.contains(&address) {
        return Kind::Metadata;
    }
    match address.octets() {
        // To connect to 0.0.0.0 is to connect to this machine.
        [127, ..] | [0, 0, 0, 0] => Kind::Loopback,
        [0, ..] => Kind::Private("no address of a server"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private("a private address"),
        [100, 64..=127, ..] => Kind::Private("an address of a carrier's network"),
        [169, 254, ..] => Kind::Private("a link-local address"),
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => Kind::Private("a reserved address"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Private("an address of documentation"),
        [224..=239, ..] => Kind::Private("a multicast address"),
        [240..=255, ..] => Kind::Private("a reserved address"),
        _ => Kind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    if METADATA_V6.contains(&address) {
        return Kind::Metadata;
    }
    if address.is_loopback() || address.is_unspecified() {
        return Kind::Loopback;
    }
    if let Some(inside) = carried(address) {
        // A gateway would carry it on to that one.
        return match kind_v4(inside) {
            Kind::Loopback => Kind::Private("this machine in disguise"),
            other => other,
        };
    }
    match address.segments() {
        [0, ..] => Kind::Private("no address of a server"),
        [0x100, 0, 0, _, ..] | [0x2001, 0..=0x1ff, ..] | [0x64, 0xff9b, ..] | [0x5f00, ..] => {
            Kind::Private("a reserved address")
        }
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Private("an address of documentation"),
        [0xfc00..=0xfdff, ..] => Kind::Private("a private address"),
        [0xfe80..=0xfebf, ..] => Kind::Private("a link-local address"),
        [0xfec0..=0xfeff, ..] => Kind::Private("a private address"),
        [0xff00..=0xffff, ..] => Kind::Private("a multicast address"),
        _ => Kind::Public,
    }
}

/// The IPv4 address inside of an IPv6 one that only stands for it: NAT64 and 6to4.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// `::ffff:10.0.0.1` is 10.0.0.1.
fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Looks names up, and gives only the addresses that may be called.
pub(super) struct CheckedNames {
    pub(super) reach: Arc<Reach>,
    pub(super) named: Named,
}

impl fmt::Debug for CheckedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedNames").field("named", &self.named).finish_non_exhaustive()
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, named) = (self.reach.clone(), self.named);
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let mut allowed: Vec<SocketAddr> = Vec::new();
            let mut refused = None;
            for address in found {
                match reach.check(host, address.ip(), named) {
                    Ok(()) => allowed.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(error) if allowed.is_empty() => Err(error.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_and_this_machine_are_called_and_nothing_else() {
        for good in [
            "1.1.1.1",
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "0.0.0.0",
            "::",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert_eq!(check(&Reach::default(), good, good), None, "{good}");
        }
        let private = [
            "0.1.2.3",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::2",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
            "::ffff:192.168.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "2002:a00:1::",
            "2002:7f00:1::1",
            "2001::1",
        ];
        for bad in private {
            assert!(check(&Reach::default(), bad, bad).is_some(), "{bad}");
            assert_eq!(check(&Reach::new(true, [""; 0]), bad, bad), None, "{bad}");
        }
    }

    #[test]
    fn metadata_is_called_only_when_it_is_written_out() {
        for metadata in
            ["169.254.169.254", "::ffff:169.254.169.254", "100.100.100.200", "fd00:ec2::254", "168.63.129.16"]
        {
            assert!(
                check(
                    &Reach::new(
                        true,
                        ["169.254.0.0/16", "100.64.0.0/10", "fd00::/8", metadata.trim_start_matches("::ffff:")]
                    ),
                    "h",
                    metadata
                )
                .is_none()
            );
            assert!(
                check(&Reach::new(true, ["169.254.0.0/16", "100.64.0.0/10", "fd00::/8", "h"]), "h", metadata).is_some()
            );
        }
    }

    #[test]
    fn what_is_listed_is_called() {
        let reach = Reach::new(false, ["10.0.0.0/8", "NAS.lan.", "192.168.1.5", "[fd12::]/16"]);
        assert_eq!(check(&reach, "x", "10.200.0.1"), None);
        assert_eq!(check(&reach, "nas.lan", "192.168.7.7"), None);
        assert_eq!(check(&reach, "x", "192.168.1.5"), None);
        assert_eq!(check(&reach, "x", "fd12::9"), None);
        let said = "192.168.1.6 is a private address, which is not allowed unless it is listed (`allow_private`)";
        assert_eq!(check(&reach, "x", "192.168.1.6").as_deref(), Some(said));
        assert!(check(&Reach::new(false, ["0.0.0.0/0"]), "x", "10.0.0.1").is_none());
    }

    #[test]
    fn a_name_of_somebody_else_does_not_lead_to_this_machine() {
        assert_eq!(check(&Reach::default(), "localhost", "127.0.0.1"), None);
        assert_eq!(check(&Reach::default(), "Dev.localhost", "::1"), None);
        assert!(check(&Reach::default(), "evil.example", "127.0.0.1").is_some());
        assert!(check(&Reach::new(true, [""; 0]), "evil.example", "127.0.0.1").is_some());
        assert!(check(&Reach::new(false, ["mine.example"]), "mine.example", "127.0.0.1").is_none());

        let led =
            |reach: &Reach, host: &str, address: &str| reach.check(host, address.parse().unwrap(), Named::ByServer);
        assert!(led(&Reach::default(), "127.0.0.1", "127.0.0.1").is_err());
        assert!(led(&Reach::default(), "localhost", "::1").is_err());
        assert!(led(&Reach::new(true, [""; 0]), "localhost", "::1").is_err());
        assert!(led(&Reach::new(false, ["127.0.0.1"]), "127.0.0.1", "127.0.0.1").is_ok());
        assert!(led(&Reach::default(), "x", "1.1.1.1").is_ok());
    }

    #[test]
    fn the_address_that_means_all_of_this_machine_is_never_reached_through_a_server() {
        let everything = Reach::new(true, ["0.0.0.0/0", "::/0", "0.0.0.0", "::", "x"]);
        for address in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
            for reach in [&Reach::default(), &Reach::new(true, [""; 0]), &everything] {
                let led = reach.check("x", address.parse().unwrap(), Named::ByServer);
                assert!(led.is_err(), "{address} {reach:?}");
            }
            assert!(check(&Reach::default(), "evil.example", address).is_some(), "{address}");
            assert!(check(&Reach::new(true, [""; 0]), "evil.example", address).is_some(), "{address}");
        }
    }

    fn check(reach: &Reach, host: &str, address: &str) -> Option<String> {
        reach.check(host, address.parse().unwrap(), Named::ByOperator).err().map(|error| error.to_string())
    }
}
