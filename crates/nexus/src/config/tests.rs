//! Good files load, the environment beats them, and what is shown is what takes effect.

mod refused;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const HASH: &str = "6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090";

#[test]
fn the_examples_load() {
    let full = load_example("nexus.yaml");
    assert_eq!(full.config.keys.len(), 2);
    assert_eq!(full.config.nodes.len(), 1);
    let topology = full.config.topology.static_file.unwrap();
    let topology: &Path = topology.as_ref();
    assert!(topology.is_absolute() && topology.ends_with("config/topology.yaml"));
    assert!(AsRef::<Path>::as_ref(&full.config.mcp.files[0]).exists(), "{:?}", full.config.mcp.files);
    let node_key = full.config.nodes.into_values().next().unwrap().key.unwrap();
    assert_eq!(AsRef::<Path>::as_ref(&node_key), Path::new("/home/u/.ssh/id_ed25519"));

    let minimal = load_example("minimal.yaml");
    assert_eq!(minimal.config.server.http_port, 8765);
    assert_eq!(minimal.data, Path::new("/home/u/.local/share/nexus"));
    assert_eq!(minimal.config.ansible.unwrap().repo_url.as_ref(), "git@github.com:you/playbooks.git");

    #[track_caller]
    fn load_example(name: &str) -> Loaded {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name);
        load(Some(&file), None, &Env::from_pairs([("HOME", "/home/u")])).unwrap_or_else(|faults| panic!("{faults}"))
    }
}

#[test]
fn the_example_holds_every_key() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/nexus.yaml")).unwrap();
    for line in
        reference().lines().filter(|line| line.starts_with("| `") && line.contains('.') && !line.contains("_FILE"))
    {
        let path = line.split('`').nth(1).unwrap();
        let key = path.rsplit('.').next().unwrap();
        if EnvVar::ALL.iter().all(|variable| variable.name() != path) {
            assert!(text.contains(&format!("{key}:")), "config/nexus.yaml does not show {path}");
        }
    }
}

#[test]
fn nothing_at_all_is_a_configuration() {
    for text in [
        "",
        "\n\n",
        "# only a comment\n",
        "---\n",
        "~",
        "{}",
        "server:\n",
        "\u{feff}server: {}",
        "server: {http_port: ~}",
    ] {
        let config = good(text, &[]);
        assert_eq!(config.server.http_port, 8765, "{text:?}");
        assert_eq!(config.server.limits.session_idle.0, Duration::from_secs(24 * 3600));
        assert!(config.keys.is_empty() && config.ansible.is_none());
    }
}

#[test]
fn what_is_shown_loads_again_as_the_same() {
    let example =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/nexus.yaml")).unwrap();
    for text in ["", example.as_str()] {
        let shown = show(&good(text, &[("MCP_API_KEY", KEY), ("LOKI_URL", "http://loki:3100/")]));
        assert!(
            !shown.contains(KEY) && shown.contains("api_key: \"[set]\"") && shown.contains("http://loki:3100"),
            "{shown}"
        );
        let (file, environment) = shown.split_at(shown.find("environment:").unwrap());
        let again = show(&good(file, &[("MCP_API_KEY", KEY), ("LOKI_URL", "http://loki:3100")]));
        assert_eq!(again, format!("{file}{environment}"));
    }
}

#[test]
fn the_environment_beats_the_file() {
    let file = "server: { http_host: 10.0.0.1, http_port: 1 }\nlinks: { host: 10.0.0.1, port: 2, probe_timeout_ms: 3 }";
    let config = good(
        file,
        &[
            ("MCP_HOST", "localhost"),
            ("MCP_PORT", "0"),
            ("CC_LINK_HOST", "::1"),
            ("CC_LINK_PORT", "4001"),
            ("CC_PROBE_TIMEOUT_MS", "50"),
            ("NEXUS_LOG", "nexus=debug,warn"),
        ],
    );
    assert_eq!(config.server.http_host.to_string(), "127.0.0.1");
    assert_eq!(config.server.http_port, 0);
    assert_eq!((config.links.host.to_string().as_str(), config.links.port), ("::1", 4001));
    assert_eq!(config.links.probe_timeout_ms.get(), 50);
    assert_eq!(config.environment.log_filter.as_ref().map(AsRef::as_ref), Some("nexus=debug,warn"));
}

#[test]
fn it_is_known_whether_somebody_chose_where_computers_dial() {
    check("", &[], false);
    check("links: { probe_timeout_ms: 50, host: ~ }", &[("CC_LINK_TOKEN", "12345678")], false);
    check("links: { port: 3001 }", &[], true);
    check("links: { host: 0.0.0.0 }", &[], true);
    check("", &[("CC_LINK_PORT", "3001")], true);
    check("", &[("CC_LINK_HOST", "0.0.0.0")], true);

    #[track_caller]
    fn check(text: &str, env: &[(&str, &str)], expected: bool) {
        assert_eq!(good(text, env).links_chosen, expected, "{text} {env:?}");
    }
}

#[test]
fn a_named_file_must_be_there_and_the_usual_places_need_not() {
    let home = tempfile::tempdir().unwrap();
    let env = Env::from_pairs([("HOME", home.path().to_str().unwrap())]);
    assert_eq!(load(None, None, &env).unwrap().file, None);

    let usual = home.path().join(".config/nexus/nexus.yaml");
    std::fs::create_dir_all(usual.parent().unwrap()).unwrap();
    write(&usual, b"server: { http_port: 1 }");
    let loaded = load(None, Some(Path::new("/srv/nexus")), &env).unwrap();
    assert_eq!((loaded.file, loaded.data, loaded.config.server.http_port), (Some(usual), "/srv/nexus".into(), 1));

    let missing = load(Some(Path::new("missing.yaml")), None, &env).unwrap_err().to_string();
    assert_eq!(
        missing,
        "missing.yaml: cannot be read: No such file or directory (os error 2)\n1 fault; nothing was started"
    );
    let folder = load(Some(home.path()), None, &env).unwrap_err().to_string();
    assert!(folder.contains("cannot be read: Is a directory"), "{folder}");

    let named = Env::from_pairs([("NEXUS_CONFIG", "/missing.yaml"), ("NEXUS_DATA", "/srv")]);
    assert!(load(None, None, &named).unwrap_err().to_string().starts_with("/missing.yaml: cannot be read"));
    let homeless = load(None, None, &Env::default()).unwrap_err().to_string();
    assert!(homeless.contains("hint: --data DIR, or NEXUS_DATA"), "{homeless}");
}

#[test]
fn a_listener_beyond_loopback_needs_a_key() {
    assert!(good("", &[]).keyless_listener().is_none());
    assert!(good("server: { http_host: '::1' }", &[]).keyless_listener().is_none());
    assert!(good("", &[("MCP_HOST", "0.0.0.0"), ("MCP_API_KEY", KEY)]).keyless_listener().is_none());
    assert!(
        good(&format!("server: {{ http_host: 0.0.0.0 }}\nkeys: [{{ name: a, sha256: {HASH} }}]"), &[])
            .keyless_listener()
            .is_none()
    );
    let fault = good("", &[("MCP_HOST", "0.0.0.0")]).keyless_listener().unwrap().to_string();
    assert!(fault.starts_with("the MCP listener on 0.0.0.0 would be reachable without a key\nhint: "), "{fault}");
}

#[test]
fn dates_are_good_until_their_end() {
    check("2027-01-31", "2027-02-01T00:00:00Z");
    check("2027-01-31T18:00:00Z", "2027-01-31T18:00:00Z");
    check("2027-01-31T18:00:00+02:00", "2027-01-31T16:00:00Z");

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let config = good(&format!("keys: [{{ name: a, sha256: {HASH}, expires: {text} }}]"), &[]);
        assert_eq!(config.keys[0].expires.unwrap().0.to_string(), expected);
    }
}

#[test]
fn the_reference_page_names_every_key_and_variable() {
    let page = reference();
    for expected in [
        "| `server.http_port` | a port (0 to 65535) | `8765` | Port to listen on; 0 takes any free one. `MCP_PORT` beats it. |",
        "| `keys[].sha256` | 64 hexadecimal digits | *required* |",
        "| `nodes.NAME.ssh` |",
        "| `agents.targets.NAME.telegram.chat_id` |",
        "| `MCP_API_KEY` | `MCP_API_KEY_FILE` |",
        "| `MCP_PORT` |  |",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    assert_eq!(page, reference());
}

#[track_caller]
fn good(text: &str, env: &[(&str, &str)]) -> Config {
    load_text(text.as_bytes(), env).unwrap_or_else(|faults| panic!("{text}\n{faults}")).config
}

#[track_caller]
fn faults(text: &str, env: &[(&str, &str)]) -> String {
    faults_of_bytes(text.as_bytes(), env)
}

/// The faults as printed, with the file's folder taken off.
#[track_caller]
fn faults_of_bytes(bytes: &[u8], env: &[(&str, &str)]) -> String {
    load_text(bytes, env).expect_err("the file should be refused").to_string()
}

fn load_text(bytes: &[u8], env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("nexus.yaml");
    write(&file, bytes);
    let env = Env::from_pairs([("HOME", "/home/u")].iter().chain(env).copied());
    load(Some(&file), None, &env).map_err(|mut faults| {
        faults.rename_file("nexus.yaml");
        faults
    })
}

fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    std::fs::File::create(path).and_then(|mut file| file.write_all(bytes)).unwrap();
}
