//! Names: the table of the issue, and what holds for any names at all.

use proptest::prelude::*;

use super::*;

fn named<'a>(server: &str, prefix: Option<&str>, tools: impl IntoIterator<Item = &'a str>) -> Names {
    Names::of(&Naming::new(&ServerName::new(server), prefix), tools, &Claims::default())
}

#[test]
fn upstream_names_become_tool_names() {
    check("github", "list-repos", "mcp_github_list_repos");
    check("GitHub API", "list-repos", "mcp_github_api_list_repos");
    check("evil/../path", "../../etc", "mcp_evil_path_etc");
    check("a", "b\u{202e}c\n\u{1b}[31m", "mcp_a_b_c_31m");
    check("__x__", "--y--", "mcp_x_y");
    check("x", "Ünïcode", "mcp_x_n_code");

    #[track_caller]
    fn check(server: &str, tool: &str, name: &str) {
        assert_eq!(named(server, None, [tool]).exposed(tool).unwrap().as_str(), name);
    }
}

#[test]
fn what_is_cut_or_empty_ends_in_a_hash() {
    check("x", "日本", "mcp_x_");
    check("日本", "echo", "mcp_");
    check("x", &"long_".repeat(40), "mcp_x_long_long_");
    check(&"server".repeat(20), "echo", "mcp_serverserver");

    #[track_caller]
    fn check(server: &str, tool: &str, start: &str) {
        let names = named(server, None, [tool]);
        let name = names.exposed(tool).unwrap().as_str();
        assert!(name.starts_with(start) && name.len() <= 64, "{name}");
        assert!(name.split('_').any(|part| part.len() == 6 && part.bytes().all(|b| b.is_ascii_hexdigit())), "{name}");
    }
}

#[test]
fn a_prefix_replaces_server_and_all() {
    check(Some(""), "test_simple_text", "test_simple_text");
    check(Some("gh_"), "list-repos", "gh_list_repos");
    check(Some("GH-"), "list-repos", "gh_list_repos");
    check(Some("gh"), "repos", "ghrepos");
    check(None, "repos", "mcp_srv_repos");

    #[track_caller]
    fn check(prefix: Option<&str>, tool: &str, name: &str) {
        assert_eq!(named("srv", prefix, [tool]).exposed(tool).unwrap().as_str(), name);
    }
}

#[test]
fn of_two_that_sound_alike_the_plain_one_keeps_the_name() {
    for order in [["List-Repos", "list_repos"], ["list_repos", "List-Repos"]] {
        let names = named("x", None, order);
        assert_eq!(names.exposed("list_repos").unwrap().as_str(), "mcp_x_list_repos");
        let other = names.exposed("List-Repos").unwrap();
        assert!(other.as_str().starts_with("mcp_x_list_repos_"), "{other}");
        assert_eq!(names.original(other), Some("List-Repos"));
    }
}

#[test]
fn no_two_servers_share_a_name_and_none_takes_one_of_ours() {
    let claims = Claims::reserving([ToolName::parse("read_file").unwrap()]);
    let of = |server: &str, prefix, tool| {
        let names = Names::of(&Naming::new(&ServerName::new(server), prefix), [tool], &claims);
        names.exposed(tool).unwrap().to_string()
    };
    assert_eq!(of("a", None, "b_c"), "mcp_a_b_c");
    assert!(of("a_b", None, "c").starts_with("mcp_a_b_c_"));
    assert_eq!(of("a", None, "b_c"), "mcp_a_b_c", "asking again changes nothing");
    assert!(of("f", Some(""), "read_file").starts_with("read_file_"));
    claims.release(&ServerName::new("a"));
    assert_eq!(of("a_b", None, "c"), "mcp_a_b_c");
}

#[test]
fn servers_that_sound_alike_can_be_told_apart() {
    let (one, two) = (ServerName::new("GitHub API"), ServerName::new("github-api"));
    assert_eq!(slug_of(&one), slug_of(&two));
    let names = Names::of(&Naming::distinct(&two), ["x"], &Claims::default());
    let name = names.exposed("x").unwrap().as_str();
    assert!(name.starts_with("mcp_github_api_") && name != "mcp_github_api_x", "{name}");
}

#[test]
fn names_depend_on_which_servers_there_are_and_on_nothing_else() {
    let names: Vec<ServerName> = ["A-B", "a_b", "A B", "a", "日本"].map(ServerName::new).into();
    let mut servers: Vec<_> = names.iter().map(|name| (name, None)).collect();
    let before = namings(&servers);
    servers.reverse();
    assert_eq!(namings(&servers), before);
    let of = |server: &str, tool: &str| {
        let naming = &before[&ServerName::new(server)];
        Names::of(naming, [tool], &Claims::default()).exposed(tool).unwrap().to_string()
    };
    assert_eq!(of("a_b", "add"), "mcp_a_b_add", "who is called exactly that");
    let (one, two) = (of("A-B", "add"), of("A B", "add"));
    assert!(one != two && [&one, &two].iter().all(|name| name.starts_with("mcp_a_b_") && name.ends_with("_add")));
    assert!(of("a", "b_add").starts_with("mcp_a_b_add_"), "such a name is the other's, whether it is there or not");
    assert_eq!(of("a", "add"), "mcp_a_add");
    let alone = [(&names[0], None)];
    assert_eq!(Names::of(&namings(&alone)[&names[0]], ["add"], &Claims::default()).len(), 1);
    assert_eq!(namings(&alone)[&names[0]], Naming::new(&names[0], None), "alone it has the plain names");
}

#[test]
fn uris_get_a_scheme_of_their_server_and_lose_it_again() {
    check("GitHub API", None, "test://x", "mcp-github-api+test://x");
    check("x", None, "test://template/{id}/data", "mcp-x+test://template/{id}/data");
    check("x", Some(""), "test://x", "test://x");
    check("x", Some("gh_"), "file:///a", "gh+file:///a");
    check("x", Some("9_"), "file:///a", "x9+file:///a");

    #[track_caller]
    fn check(server: &str, prefix: Option<&str>, uri: &str, exposed: &str) {
        let naming = Naming::new(&ServerName::new(server), prefix);
        assert_eq!(naming.expose_uri(uri), exposed);
        assert_eq!(naming.original_uri(exposed), Some(uri));
    }
}

proptest! {
    #[test]
    fn any_names_fit_are_told_apart_and_lead_back(
        server in ".{0,80}",
        prefix in proptest::option::of("[a-zA-Z_/]{0,70}"),
        mut tools in proptest::collection::vec("[aA_\\-é/]{0,6}|.{0,90}", 1..20),
    ) {
        let names = named(&server, prefix.as_deref(), tools.iter().map(String::as_str));
        for tool in &tools {
            let exposed = names.exposed(tool).unwrap();
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            prop_assert!(exposed.as_str().len() <= 64 && exposed.as_str().chars().all(plain), "{exposed}");
            prop_assert_eq!(names.original(exposed), Some(tool.as_str()));
        }
        tools.reverse();
        let again = named(&server, prefix.as_deref(), tools.iter().map(String::as_str));
        for tool in &tools {
            prop_assert_eq!(names.exposed(tool), again.exposed(tool));
        }
    }
}
