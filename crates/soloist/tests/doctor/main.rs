//! `soloist doctor`: everything that can be broken is broken on the real thing, and seen.
//!
//! Each check, and where it fails here:
//!
//! | check | broken in |
//! |---|---|
//! | the timings fit together; the timeouts fit into the grace period | `cluster::settings_that_do_not_fit…` |
//! | it is configured | `cluster::{a_kubeconfig_that_is_only_half_there…, a_context…, no_cluster_at_all…}` |
//! | it answers in time | `cluster::{an_api_server_that_does_not_answer…, a_slow_api_server…}` |
//! | it knows who we are | `cluster::{a_token_that_the_server_does_not_know…, a_kubeconfig_that_is_only_half_there…}` |
//! | its name is known | `workload::a_workload_that_does_not_say_which_lease…` |
//! | may create, get, list, watch, update | `rights::{each_missing_verb…, the_rights_of_a_service_account…}` |
//! | optional: … | `rights::with_the_least_rights…` (one that is missing breaks nothing), `workload::rights_that_a_deployments_own_flags_need…` |
//! | prestop sees when its Pod is out…; the Pod's real grace period can be read | `no_election::a_deployment_without_an_election…` |
//! | the namespace takes a lease | `cluster::{a_namespace_that_is_not_there…, a_quota…}` |
//! | it is held | `lease::a_lease_that_nobody_has…` |
//! | its holder is there | `lease::{a_lease_whose_holder_is_gone…, a_lease_of_a_former_pod…}` |
//! | it is renewed | `lease::{a_lease_whose_holder_is_gone…, a_lease_that_is_taken_while_we_look…}` |
//! | its holder's name is used once | `lease::two_processes_of_one_name…` |
//! | nobody else writes it | `lease::a_lease_whose_holder_is_gone…` |
//! | the leader seldom changes | `troubles::{a_leader_that_changes…, a_leader_that_is_killed…}`, `lease::a_leader_that_changes…` |
//! | a takeover after a crash is quick | `troubles::a_failover_that_a_long_lease…`, `lease::a_lease_that_lasts_longer…` |
//! | takeovers were quick | `troubles::a_failover_that_was_slow…` |
//! | its times beside this clock | `lease::clocks_that_differ…` (information: no decision reads them) |
//! | it is described | `workload::a_workload_that_is_not_there…` |
//! | its settings fit together; its grace period, its preStop hook is soloist's; it knows its name and UID; its identity is its own; it has a token; soloist is its first process; it is ready whether or not it leads; its CPU is not limited; there are standbys | `workload::each_fault_of_a_deployment…`, `workload::a_shell_in_front…`, `no_election::{faults_of_a_deployment…, a_hook_that_leaves…}` |
//! | there are others | `no_election::faults_of_a_deployment…` |
//! | they are on several nodes | `workload::replicas_on_one_node…` |
//! | a PodDisruptionBudget guards them | `workload::a_printed_deployment…` |
//! | its folder can be used; it can be read | `file::{a_folder_that_others…, a_file_that_is_no_lease…}` |
//! | … answers; its members are of one cluster; a majority can be used; the lease can be read, may be written | `tests/etcd.rs` |
//! | its kernel is new enough | `machine::an_old_kernel…` |
//! | its clock has the hardware's rate | `machine::a_clock_that_an_ntp_client_slews…` |
//! | processes can be seen; can be held | `machine::{a_machine_without_proc…, a_sandbox_that_refuses_pidfds…}` |
//! | the guard can kill what runs as another user | `machine::a_program_that_could_become_another_user…` |
//! | the program cannot trace soloist and its guard | `machine::a_program_that_could_trace…` |
//! | what soloist starts dies with it | `machine::a_container_whose_first_process…` |
//! | there is memory left; processes can be started; its CPU is not throttled | `machine::{little_memory…, processes_that_were_killed…, a_limit_of_processes…, a_cpu_limit_that_throttles…, the_limits_of_the_pod…}` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cluster;
mod file;
mod lease;
mod machine;
mod no_election;
mod patient;
mod rights;
mod troubles;
mod workload;
